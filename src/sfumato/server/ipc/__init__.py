"""Messages between the HTTP process ("edge") and the vault process ("door") over a Unix socket."""
