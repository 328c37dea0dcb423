"""Only for HAMi's protocol on the node: the answer to Allocate, as HAMi's device plugin gives it.

``locked_answer`` tells a container its devices and limits, ``locked_cdi`` writes the CDI specs that
some of these answers name. Both use ``handover``, which does not know them; ``node_side`` alone
chooses between the two, by the slice's identity.
"""
