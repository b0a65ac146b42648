"""Docker as people have it, beside the usual daemon: the newest, with remapped users, and rootless."""
