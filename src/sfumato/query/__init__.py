"""Pure: SQL or Python becomes a question, a question becomes a plan; schemas, never rows."""
