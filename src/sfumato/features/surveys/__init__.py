"""Surveys with local differential privacy: the respondent's device adds the noise."""
