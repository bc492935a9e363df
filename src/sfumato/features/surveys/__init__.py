"""Surveys: the noise is drawn where the person is, and the house holds nobody's true answer."""
