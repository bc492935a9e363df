"""What MkDocs needs to build the site of this repository: hooks, generated pages, a link check."""
