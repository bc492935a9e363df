"""Output checking: files without noise, reviewed by several people before they leave."""
