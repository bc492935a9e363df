"""The release step of each guarantee: turn a sealed value into what may leave.

`central_dp` adds noise, `secure_aggregation` adds noise or none, and masks. `k_anonymity` and
`reviewed` add neither, and label their values as not DP.
"""
