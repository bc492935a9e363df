"""The HTTP face: routes made of the wire's table, limits of its own, one error mapper."""
