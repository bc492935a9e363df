"""Tables of MySQL, MariaDB and other databases as sources of rows, read through SQLAlchemy."""
