"""What runs in a guest, as a part of the image."""
