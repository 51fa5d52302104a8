"""The long-term memory for clients of the Model Context Protocol: ``threadfold mcp``.

It needs the package ``mcp`` (extra ``mcp``), and speaks to the gateway by the light client: tenant,
user, scopes and quotas are those of the caller's credential.
"""
