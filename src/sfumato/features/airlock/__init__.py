"""Files that no noise could make private: looked at by several people, then let out or not."""
