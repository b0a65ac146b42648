"""Container engines: the one seam between a session and the machine it runs on."""
