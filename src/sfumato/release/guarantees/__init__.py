"""The release step of each guarantee: turn a sealed value into a value that may leave.

`central_dp` adds noise. `secure_aggregation` adds noise or none, then masks. `k_anonymity` and
`reviewed` add neither, and label their values as not DP.
"""
