"""Linear and logistic regression, built from ordinary queries."""
