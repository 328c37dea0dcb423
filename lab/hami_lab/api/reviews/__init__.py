"""Who somebody is, and what he may do: tokens, their review, and RBAC's answer to a question.

Questions are answered, and nothing of them is stored. This server lets in whoever has its own token
and asks RBAC nothing about him: rights are only what a SubjectAccessReview says of others. There
are no default ClusterRoles, and none are aggregated.
"""
