"""The tests of the plugins, a folder each: `unit`, `container` and `attacks` need what the folders of that name do."""
