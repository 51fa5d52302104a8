"""The policy: defaults, layers, checks, and what a conversation's own overrides may do."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.errors import InvalidPolicy, ThreadfoldError, UnusablePolicy
from projections.policy.key_bounds import PINNED_KEYS
from projections.policy.policy import Policy, Rules, make_policy
from tests.support.profiles import examples


def test_defaults_are_those_of_the_contract() -> None:
    policy = make_policy()
    assert policy == Policy()
    assert (policy.encoding, policy.model_window, policy.reserve_tokens) == (
        "o200k_base",
        128_000,
        16_384,
    )
    assert (policy.hard_ceiling, policy.working_budget, policy.keep_recent_tokens) == (
        0.72,
        30_000,
        20_000,
    )
    assert (policy.min_messages, policy.compaction_ratio, policy.summary_max_tokens) == (
        20,
        0.75,
        1_500,
    )
    assert (policy.ceiling, policy.pinned_limit) == (92_160, 32_000)


def test_the_narrower_layer_wins_key_by_key() -> None:
    policy = make_policy({"working_budget": 1_000, "min_messages": 5}, None, {"min_messages": 9})
    assert (policy.working_budget, policy.min_messages) == (1_000, 9)


def test_budgets_follow_from_ceiling_and_pinned_lane() -> None:
    policy = make_policy(
        {
            "model_window": 2_000,
            "reserve_tokens": 200,
            "working_budget": 5_000,
            "summary_max_tokens": 100,
        }
    )
    assert policy.ceiling == 1_440
    assert policy.budget(0) == 1_340
    assert policy.budget(500) == 840
    assert policy.budget(10**6) == 1
    assert policy.keep_recent(500) == 420


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"working_bugdet": 1}, "'working_bugdet' is unknown"),
        ({"working_budget": "many"}, "working_budget: expected a whole number, got text"),
        ({"working_budget": 0}, "working_budget is 0: it must be 1 or more"),
        ({"model_window": 0}, "model_window"),
        ({"min_messages": -1}, "min_messages is -1: it must be 0 or more"),
        ({"hard_ceiling": 1.01}, "hard_ceiling"),
        ({"low_water": -0.1}, "low_water"),
        ({"compaction_ratio": float("nan")}, "compaction_ratio"),
        ({"reserve_tokens": 128_000}, "reserve_tokens"),
        ({"pinned_max_tokens": 32_001}, "pinned_max_tokens"),
        ({"pinned_max_tokens": -1}, "pinned_max_tokens"),
        ({"summary_max_tokens": 92_160}, "summary_max_tokens"),
        ({"encoding": "p50k"}, "p50k"),
        ({"cuts": "sometimes"}, "cuts"),
        ({"profile": "none"}, "profile: 'none' is not one of bounded, composed, pruning, sliding"),
        ({"reducers": [1]}, "reducers[0]: expected an object, got a whole number"),
        ({"reducers": [{"name": "last"}]}, "'last' is not one of keep_last_n_turns, keep_last"),
        ({"close_summarizer": 4}, "expected text or null, got a whole number"),
        ({"compaction": 1}, "compaction"),
        ({"model_window": 10**400}, "model_window"),
    ],
)
def test_a_policy_that_does_not_hold_is_refused_by_its_key(
    layer: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        make_policy(layer)
    assert named in str(caught.value)


def test_contradictions_between_layers_are_found() -> None:
    with pytest.raises(InvalidPolicy, match="reserve_tokens"):
        make_policy({"reserve_tokens": 5_000}, {"model_window": 4_000})


def test_rules_refuse_what_does_not_hold_at_once() -> None:
    with pytest.raises(InvalidPolicy):
        Rules({"nope": 1})
    rules = Rules({}, {"acme": {"nope": 1}})
    with pytest.raises(UnusablePolicy, match=r"tenant acme .*'nope' is unknown"):
        rules.for_conversation("acme", None)
    assert rules.for_conversation("other", None) == make_policy()


def test_a_conversations_overrides_win_and_those_that_do_not_fit_are_left_out_whole() -> None:
    rules = Rules({"working_budget": 1_000}, {"acme": {"min_messages": 3}})
    assert rules.for_conversation("acme", {"min_messages": 7}) == make_policy(
        {"working_budget": 1_000, "min_messages": 7}
    )
    assert rules.for_conversation("acme", {"min_messages": 7, "nope": 1}) == make_policy(
        {"working_budget": 1_000, "min_messages": 3}
    )
    assert rules.for_conversation("other", None) == make_policy({"working_budget": 1_000})


def test_a_tenant_learned_after_it_was_asked_for_gets_its_policy() -> None:
    rules = Rules()
    assert rules.for_conversation("acme", None).min_messages == 20
    rules.learn({"acme": {"min_messages": 3}})
    assert rules.for_conversation("acme", None).min_messages == 3


def test_what_is_known_of_a_tenant_stays_as_it_is() -> None:
    rules = Rules({}, {"acme": {"min_messages": 3}})
    rules.learn({"acme": {"min_messages": 9}})
    assert rules.for_conversation("acme", None).min_messages == 3


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**320)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
LAYERS = st.dictionaries(st.sampled_from([*Policy.__struct_fields__, "nope"]), JSON, max_size=3)


@given(LAYERS)
@hypothesis_settings(max_examples=examples(400), deadline=None)
def test_any_json_as_a_policy_is_taken_or_refused_by_name(layer: dict[str, Any]) -> None:
    try:
        policy = make_policy(layer)
    except ThreadfoldError as error:
        assert isinstance(error, InvalidPolicy)
    else:
        assert policy.ceiling >= 1 and policy.budget(policy.ceiling) == 1


@given(LAYERS)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_any_overrides_in_the_log_give_some_policy(layer: dict[str, Any]) -> None:
    assert Rules().for_conversation("acme", layer).ceiling >= 1


def test_what_refuses_an_unusable_policy_comes_back_from_another_process() -> None:
    error = UnusablePolicy("newer", "policy key 'tomorrow' is unknown")
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.tenant, back.why) == (str(error), error.tenant, error.why)


OTHER_VALUES: dict[type, list[Any]] = {
    bool: [True, False],
    int: [0, 1, 700, 90_000],
    float: [0.0, 0.01, 1.0],
}
OWN_POLICIES: list[dict[str, Any]] = [
    {"model_window": 1_000, "pinned_max_tokens": 250},
    {"reserve_tokens": 100_000, "summary_max_tokens": 5},
    {"hard_ceiling": 0.1, "pinned_max_tokens": 3},
    {"profile": "sliding"},
    {"encoding": "cl100k_base", "working_budget": 5},
]


@pytest.mark.parametrize("name", sorted({*Policy.__struct_fields__} - {*PINNED_KEYS}))
def test_no_other_key_decides_how_much_a_conversation_may_pin(name: str) -> None:
    def bounds(layer: dict[str, Any], own: dict[str, Any]) -> tuple[int, str]:
        policy = Rules(layer).for_conversation("acme", own)
        return policy.pinned_limit, policy.encoding

    tight = {"model_window": 20_000, "pinned_max_tokens": 60, "reserve_tokens": 200}
    value = getattr(Policy(), name)
    for other in OTHER_VALUES.get(type(value), [value]):
        try:
            Rules(changed := {**tight, name: msgspec.to_builtins(other)})
        except InvalidPolicy:
            continue
        for own in OWN_POLICIES:
            assert bounds(changed, own) == bounds(tight, own)
