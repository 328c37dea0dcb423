"""Where the API server is, and who we are to it: kubeconfig, service account, tokens renewed.

Reads the files and the environment that it is given. Not here: the calls themselves.
"""
