"""Profiles and layers: which key wins, and what tenants and conversations may set."""

from __future__ import annotations

from typing import Any

import pytest

from projections.errors import InvalidPolicy
from projections.policy.key_bounds import MOST_REDUCERS
from projections.policy.policy import Policy, Rules, make_policy
from projections.policy.profiles import (
    PROFILES,
    CompactResults,
    KeepMessages,
    KeepTurns,
    Summarize,
    merged,
)

Layer = dict[str, Any] | None


def test_every_profile_is_a_valid_policy_and_bounded_is_the_default() -> None:
    for name in PROFILES:
        assert make_policy({"profile": name}).profile == name
    assert make_policy({"profile": "bounded"}) == Policy()


def test_the_profiles_set_what_the_contract_says() -> None:
    pruning, composed, sliding = (
        make_policy({"profile": name}) for name in ("pruning", "composed", "sliding")
    )
    assert pruning.compaction_ratio == 0.70 and pruning.trim_tool_results
    assert pruning.reducers == (CompactResults("template", 3),)
    assert not composed.trim_tool_results and composed.reducers == () and not composed.pays
    assert sliding.reducers == (KeepMessages(10),) and sliding.idle_close_seconds == 1_800
    assert sliding.pinned_limit == 300 and sliding.close_summarizer == "cheap" and sliding.pays


def test_composed_pays_only_where_summarize_is_listed() -> None:
    assert make_policy({"profile": "composed", "reducers": [{"name": "summarize"}]}).pays
    assert make_policy({"profile": "composed", "reducers": [{"name": "summarize"}]}).reducers == (
        Summarize(),
    )
    assert not make_policy(
        {"profile": "composed", "reducers": [{"name": "summarize"}], "compaction": False}
    ).pays


@pytest.mark.parametrize(
    ("layers", "ratio", "turns"),
    [
        (({"profile": "pruning"},), 0.70, "pruning"),
        (({"profile": "pruning", "compaction_ratio": 0.5},), 0.5, "pruning"),
        (({"compaction_ratio": 0.5}, {"profile": "pruning"}), 0.70, "pruning"),
        (({"profile": "pruning"}, {"compaction_ratio": 0.5}), 0.5, "pruning"),
        (
            ({"compaction_ratio": 0.5}, {"profile": "pruning"}, {"compaction_ratio": 0.6}),
            0.6,
            "pruning",
        ),
        (({"profile": "pruning"}, {"profile": "bounded"}), 0.75, "none"),
        (({"profile": "pruning", "compaction_ratio": 0.5}, {"profile": "sliding"}), 0.5, "sliding"),
        ((None, {"profile": "pruning"}, None), 0.70, "pruning"),
    ],
)
def test_a_narrower_profile_wins_its_keys_and_narrower_keys_win_over_it(
    layers: tuple[Layer, ...], ratio: float, turns: str
) -> None:
    policy = make_policy(*layers)
    assert policy.compaction_ratio == ratio
    assert (
        policy.reducers
        == {
            "pruning": (CompactResults("template", 3),),
            "sliding": (KeepMessages(10),),
            "none": (),
        }[turns]
    )


def test_merging_changes_no_layer_and_checks_no_value() -> None:
    wide: dict[str, Any] = {"compaction_ratio": "x", "nope": 1}
    assert merged((wide, {"profile": "pruning"}))["nope"] == 1
    assert wide == {"compaction_ratio": "x", "nope": 1}
    assert merged(({"profile": ["odd"]},)) == {"profile": ["odd"]}
    assert merged(({"profile": "unknown"},)) == {"profile": "unknown"}


@pytest.mark.parametrize(
    "reducer",
    [
        {"name": "keep_last_n_turns"},
        {"name": "keep_last_n_turns", "n": -1},
        {"name": "keep_last_n_messages", "n": 1.5},
        {"name": "keep_last_n_messages", "n": 3, "m": 4},
        {"name": "compact_tool_results", "replacement": 3},
        {"name": "compact_tool_results", "replacement": "x" * 1_001},
        {"name": "summarize_tool_results", "top": 0},
        {"name": "summarise"},
        {"n": 3},
    ],
)
def test_a_reducer_that_does_not_hold_is_refused(reducer: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy, match="reducers"):
        make_policy({"reducers": [reducer]})


def test_reducers_have_their_defaults() -> None:
    compact = {"name": "compact_tool_results"}
    reducers = [compact, {**compact, "replacement": None}, {"name": "keep_last_n_turns", "n": 0}]
    first, second, third = make_policy({"reducers": reducers}).reducers
    assert (
        isinstance(first, CompactResults)
        and first.replacement == "[{tool_name} {call_id}: {result_length} characters]"
    )
    assert (
        isinstance(second, CompactResults)
        and second.replacement is None
        and second.keep_last_n == 0
    )
    assert third == KeepTurns(0)


# -- what layers may set
# ------------------------------------------------------------------------------------------


def test_without_a_list_all_keys_may_be_set_but_encryption_by_a_conversation() -> None:
    rules = Rules()
    assert rules.check({"encryption": True, "model_window": 64_000}).encryption
    assert rules.check(None, {"min_messages": 3}).min_messages == 3
    for listing in (rules, Rules({"allow": ["encryption", "min_messages"]})):
        with pytest.raises(InvalidPolicy, match="encryption cannot be set here"):
            listing.check(None, {"encryption": True})


def test_with_a_list_nothing_else_may_be_set() -> None:
    rules = Rules({"allow": ["min_messages"], "working_budget": 9_000})
    assert rules.check({"min_messages": 3}, {"min_messages": 4}).min_messages == 4
    for layers in (({"working_budget": 1}, None), (None, {"working_budget": 1})):
        with pytest.raises(InvalidPolicy, match="working_budget cannot be set here"):
            rules.check(*layers)


def test_with_an_empty_list_nothing_may_be_set() -> None:
    rules = Rules({"allow": []})
    for layers in (({"min_messages": 1}, None), (None, {"min_messages": 1})):
        with pytest.raises(InvalidPolicy, match="min_messages cannot be set here"):
            rules.check(*layers)


def test_a_conversation_may_set_a_policy_though_its_tenant_has_more_since_before_the_limits() -> (
    None
):
    rules = Rules({"allow": ["min_messages"], "maxima": {"working_budget": 2_500}})
    for had in ({"working_budget": 9_000}, {"low_water": 0.3}):
        policy = rules.check(had, {"min_messages": 3})
        assert policy == make_policy(had, {"min_messages": 3})
        with pytest.raises(InvalidPolicy):
            rules.check(had)


@pytest.mark.parametrize(("value", "fits"), [(50_000, True), (50_001, False)])
def test_numbers_have_their_maxima_in_either_layer(value: int, fits: bool) -> None:
    rules = Rules({"maxima": {"working_budget": 50_000}})
    for layers in (({"working_budget": value}, None), (None, {"working_budget": value})):
        if fits:
            assert rules.check(*layers).working_budget == value
        else:
            with pytest.raises(
                InvalidPolicy, match="working_budget is 50001: this deployment allows 50000 at most"
            ):
                rules.check(*layers)


def test_a_profile_cannot_carry_a_number_over_its_maximum() -> None:
    rules = Rules({"maxima": {"idle_close_seconds": 60}})
    with pytest.raises(InvalidPolicy, match="idle_close_seconds"):
        rules.check(None, {"profile": "sliding"})
    assert (
        rules.check(None, {"profile": "sliding", "idle_close_seconds": 60}).idle_close_seconds == 60
    )


def test_a_policy_that_is_set_lists_few_reducers_and_a_log_that_has_more_folds_as_it_did() -> None:
    reducers = [{"name": "keep_last_n_turns", "n": n} for n in range(MOST_REDUCERS + 1)]
    rules, layer = Rules(), {"profile": "composed", "reducers": reducers}
    assert len(rules.check(None, {**layer, "reducers": reducers[1:]}).reducers) == MOST_REDUCERS
    for layers in ((layer, None), (None, layer)):
        with pytest.raises(InvalidPolicy, match="reducers: 17 are over the limit of 16"):
            rules.check(*layers)
    logged = rules.for_conversation("acme", layer)
    assert len(logged.reducers) == MOST_REDUCERS + 1
    assert Rules(layer).check(None, {"min_messages": 9}).min_messages == 9


def test_a_profile_that_may_be_named_brings_its_keys() -> None:
    rules = Rules({"allow": ["profile"]})
    assert rules.check(None, {"profile": "sliding"}).idle_close_seconds == 1_800
    with pytest.raises(InvalidPolicy, match="idle_close_seconds cannot be set here"):
        rules.check(None, {"profile": "sliding", "idle_close_seconds": 60})


@pytest.mark.parametrize(
    ("deployment", "named"),
    [
        ({"allow": "min_messages"}, "allow"),
        ({"allow": ["nope"]}, "allow"),
        ({"maxima": []}, "maxima"),
        ({"maxima": {"nope": 1}}, "maxima"),
        ({"maxima": {"working_budget": True}}, "maxima"),
        ({"maxima": {"working_budget": "x"}}, "maxima"),
    ],
)
def test_limits_that_do_not_hold_are_refused_at_once(
    deployment: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidPolicy, match=named):
        Rules(deployment)


def test_only_the_deployment_may_say_what_may_be_set() -> None:
    for name in ("allow", "maxima"):
        with pytest.raises(InvalidPolicy, match=name):
            Rules().check({name: {}})


def test_limits_bound_what_the_log_holds_of_a_conversation_key_by_key() -> None:
    limits = {"maxima": {"working_budget": 2_500}, "allow": ["working_budget", "min_messages"]}
    rules = Rules(limits, {"nord": {"working_budget": 9_000}})

    def own(overrides: dict[str, Any], tenant: str = "acme") -> dict[str, Any]:
        policy, others = rules.for_conversation(tenant, overrides), Policy()
        return {
            name: getattr(policy, name)
            for name in policy.__struct_fields__
            if getattr(policy, name) != getattr(others, name)
        }

    most = {"working_budget": 2_500, "min_messages": 3}
    assert own({"working_budget": 3_000, "min_messages": 3}) == most
    assert own({"low_water": 0.3, "encryption": True, **most}) == most
    # A tenant may have had more before the limits came.
    assert own({"min_messages": 3}, "nord") == {"working_budget": 9_000, "min_messages": 3}
    assert own({"working_budget": 3_000}, "nord") == {"working_budget": 2_500}
    assert own({"working_budget": 40}) == {"working_budget": 40}


def test_a_conversations_policy_that_does_not_hold_within_the_limits_is_left_out_whole() -> None:
    rules = Rules({"maxima": {"model_window": 10_000, "idle_close_seconds": 60.0}})
    profiled = rules.for_conversation("acme", {"profile": "sliding"})
    assert profiled == make_policy({"profile": "sliding", "idle_close_seconds": 60})
    for overrides in ({"model_window": 90_000}, {"no_such_key": 1}, {"min_messages": "x"}):
        assert rules.for_conversation("acme", {"working_budget": 40, **overrides}) == make_policy()


def test_what_another_producer_writes_of_encryption_is_left_out_of_a_conversation() -> None:
    for rules in (Rules(), Rules({"allow": ["encryption", "min_messages"]})):
        logged = rules.for_conversation("acme", {"encryption": True, "min_messages": 3})
        assert (logged.encryption, logged.min_messages) == (False, 3)


def test_callables_must_be_registered() -> None:
    reducers = [{"name": "compact_tool_results", "replacement": "callable:brief"}]
    with pytest.raises(InvalidPolicy, match="callable:brief"):
        Rules().check(None, {"reducers": reducers})
    rules = Rules(callables={"brief": lambda tool, call_id, text: text[:9]})
    assert rules.check(None, {"reducers": reducers}).reducers


def test_callables_that_policies_name_and_nobody_registered_are_known() -> None:
    def shortened(name: str) -> dict[str, Any]:
        return {"reducers": [{"name": "compact_tool_results", "replacement": f"callable:{name}"}]}

    tenants = {"acme": shortened("heads"), "nord": shortened("brief"), "plain": {}}
    rules = Rules(shortened("tails"), tenants, {"brief": lambda tool, call_id, text: text})
    assert rules.missing_callables() == ["heads", "tails"]
    assert Rules().missing_callables() == []


def test_summarizers_must_be_known_where_they_are_named() -> None:
    rules = Rules(summarizers=frozenset({"extractive", "big"}))
    assert rules.check({"summarizer": "big"}).summarizer == "big"
    for layer in ({"summarizer": "small"}, {"close_summarizer": "small"}):
        with pytest.raises(
            InvalidPolicy,
            match="'small' is not one of this deployment's summarisers \\(big, extractive\\)",
        ):
            rules.check(layer)
    assert Rules().check({"summarizer": "anything"}).summarizer == "anything"
