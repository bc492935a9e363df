"""Release checks, one for each guarantee: what turns a sealed value into a public one."""
