"""Where rows live: each engine answers with Sealed integers and never with a complaint."""
