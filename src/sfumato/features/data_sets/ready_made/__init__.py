"""Ready-made data cards of exports in a standard: OMOP, FHIR, REDCap, BIDS."""
