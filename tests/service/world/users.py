"""People of a cluster: service accounts with tokens, and what they may do."""

from __future__ import annotations

from .world import World


async def a_user(
    world: World, name: str, *, resizes: bool = True, namespace: str = "default"
) -> str:
    """A new account's token; ``resizes``: it may resize the pods of its namespace."""
    about = {"name": name, "namespace": namespace}
    await world.server.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
    if resizes:
        await may_resize(world, name, namespace)
    url = f"{world.server.url}/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    async with world.session.post(url, json={"spec": {}}) as answer:
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["status"]["token"])


async def may_resize(world: World, name: str, namespace: str = "default") -> None:
    """Bind the account to a role with the right."""
    about = {"name": name, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["update"]}
    await world.server.create(
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": [rule]}
    )
    await world.server.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **about}],
        }
    )
