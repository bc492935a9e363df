"""Where strangers' programs run beside the data: nothing of the host, no network, one voice."""
