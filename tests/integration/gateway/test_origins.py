"""Pages of other origins: those that are configured may call."""

from __future__ import annotations

from tests.support.end_users import PAGE, World
from tests.support.gateway import is_problem, say


async def test_a_page_of_a_configured_origin_may_call_and_no_other(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    path = f"/v1/conversations/{mine}/events"
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    preflight = await world.http.options(path, headers={"Origin": PAGE, **asks})
    assert preflight.status_code == 204
    allowed = preflight.headers
    assert allowed["access-control-allow-origin"] == PAGE
    assert "POST" in allowed["access-control-allow-methods"]
    assert "authorization" in allowed["access-control-allow-headers"]
    assert allowed["vary"] == "Origin"
    headers = {"Origin": PAGE, "Authorization": f"Bearer {token}"}
    answers = [
        await world.http.post(path, json=say("x"), headers=headers),
        await world.http.post(path, json=say("x", "system"), headers=headers),
        await world.http.post(path, json=say("x"), headers={"Origin": PAGE}),
    ]
    assert [answer.status_code for answer in answers] == [202, 403, 401]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
    for origin in ("https://evil.example", f"{PAGE}.evil.example", "null", PAGE.upper()):
        refused = await world.http.options(path, headers={"Origin": origin, **asks})
        is_problem(refused, 403, "cors_origins")
        answer = await world.http.get(
            f"/v1/conversations/{mine}/context", headers={**headers, "Origin": origin}
        )
        for each in (refused, answer):
            assert "access-control-allow-origin" not in each.headers
