"""Engines hold rows; they answer with Sealed integers and never with an error text."""
