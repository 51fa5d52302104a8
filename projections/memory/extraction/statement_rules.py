"""Which clauses state something that outlives a conversation: one rule a form, tried in order.

The forms are English, and careful: a statement that no rule knows is not lost, as its message is
found by search. A clause begins with its speaker ("I", "my") or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from projections.memory.extraction.intervals import Tense

ADV = (
    r"(?:(?:really|just|also|always|usually|generally|mostly|often|still|actually|truly|absolutely"
    r"|definitely|personally|normally|typically|especially|particularly|totally|strongly|currently"
    r"|now|finally|recently|already|sometimes|rarely|hardly|mainly|primarily|then|only"
    r"|never|very|severely|highly|happily|originally|deathly|strictly) )*"
)
RELATIVE = (
    r"(?:wife|husband|spouse|partner|girlfriend|boyfriend|fianc[e\u00e9]e?|mother|mom|mum|father|dad|parents?|son"
    r"|daughter|sons|daughters|child|kids?|children|baby|brothers?|sisters?|siblings?|twins?"
    r"|grand(?:ma|pa|mother|father|son|daughter|parents?)|aunt|uncle|cousin|niece|nephew|in-laws?"
    r"|boss|manager|colleague|roommate|flatmate|neighbou?r|landlord|doctor|teacher|best friend"
    r"|friend|dog|dogs|puppy|cat|cats|kitten|horse|parrot|rabbit|hamster|pet)"
)
_NUMBER = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|no)"
_OWNED = (
    RELATIVE
    + r"|car|truck|motorcycle|bike|boat|house|apartment|flat|garden|farm|degree|phd|masters?"
    r"|bachelor's|company|business|blog|youtube channel|podcast|subscription|membership|horses"
    r"|birds?"
    r"|fish|chickens|tattoos?|piano|guitar|violin"
)
_ILLNESS = (
    r"(?:diabetes|asthma|adhd|autism|epilepsy|arthritis|migraines?|dyslexia|insomnia|celiac disease"
    r"|coeliac disease|high blood pressure|a heart condition|a bad (?:back|knee)|a disability)"
)
_STATE = (
    r"(?:vegan|vegetarian|pescatarian|celiac|coeliac|diabetic|lactose[- ]intolerant|gluten[- ]free"
    r"|gluten[- ]intolerant|kosher|halal|teetotal|colou?r[- ]?blind|deaf|blind|pregnant|asthmatic"
    r"|claustrophobic|dyslexic)"
)
_HABIT = (
    r"(?:eat|drink|fly|travel|drive|wear|smoke|swim|consume|tolerate|climb|ride|sleep|cook|shop"
    r"|work (?:on|at|after|before|in)|use|take|buy|watch|play|speak|celebrate|own)"
)
_VERBS = (
    r"(?:(?:lives?|works?|loves?|likes?|hates?|plays?|studies|teaches|speaks?|owns?|has|have|is|are"
    r"|moved to|runs?) .+|(?:died|passed away|graduated)\b.*)"
)
_ATTRIBUTE = (
    r"(?:user (?:id|name)|username|customer (?:id|number)|member(?:ship)? (?:id|number|level"
    r"|status)"
    r"|employee (?:id|number)|account (?:id|name)|frequent flyer number|e-?mail(?: address)?"
    r"|(?:phone|mobile|telephone|cell)(?: number)?|(?:home |work |shipping |billing "
    r"|postal )?address"
    r"|(?:zip|postal) ?code|birthday|date of birth|wedding anniversary|anniversary|time ?zone"
    r"|nickname|pronouns|(?:native |first )?language|nationality|hometown|home town|home airport"
    r"|(?:shoe|shirt|dress|clothing|ring) size|height|weight|blood type|job(?: title)?|occupation"
    r"|profession|employer|company|school|university|major|degree|diet|hobby|hobbies"
    r"|star sign|zodiac sign|religion|car|dream job|middle name|last name|surname)"
)
_ORDERED = (
    r"(?:answer|reply|respond|write|speak|use|call|address|send|book|ask|include|show|explain|give"
    r"|tell|keep|avoid|format|contact|email|suggest|recommend|confirm|remind|schedule|round|translate"
    r"|cite|check|add|put|say|mention|assume|text|ship|deliver|charge|share)"
)
_COUNT = re.compile(
    r"^(?:i|we) have (?:[a-z]+ly )?(?:\d+|two|three|four|five|six|seven|eight|nine|ten|no)"
    r" (?P<of>[\w-]+)$",
    re.IGNORECASE,
)
_OCCASION = (
    r"(?:appointment|meeting|interview|exam|test|wedding|party|trip|flight|vacation|holiday|class"
    r"|surgery|check-?up|date|game|match|concert|conference|deadline|presentation|reservation"
    r"|booking|party|birthday|graduation|move|marathon|race|show|lesson|shift|due date)"
)
_PLANS = (
    r"(?:am (?:going|flying|travell?ing|moving|leaving|starting|visiting|seeing|having|getting"
    r"|taking"
    r"|meeting|attending|hosting|running|driving|returning|heading|planning|turning|celebrating)"
    r"|are (?:going|flying|travell?ing|moving|leaving|visiting|having|getting|meeting|planning)"
    r"|will (?:be|fly|travel|move|leave|start|visit|see|have|get|take|meet|attend|return"
    r"|arrive|turn)(?! to\b| if\b))"
)
_DONE = (
    r"(?:got|bought|started|moved|went|visited|met|finished|graduated|quit|lost|sold|adopted|joined"
    r"|left|returned|flew|travell?ed|broke|had|turned|ran|won|passed|booked|cancell?ed|ordered)"
)


class Rule(NamedTuple):
    """A form of clause. ``topic`` names the attribute that it gives a value, from the match;
    without one statements of it stand side by side. ``dated``: what is on a day, only with a date.
    ``said``: a text of its own instead of the clause in the third person. ``tense``: None: that of
    the clause.
    """

    memory_type: str
    pattern: re.Pattern[str]
    confidence: float
    topic: Callable[[re.Match[str]], str | None] | None = None
    task: tuple[str, ...] = ()
    constraint: tuple[str, ...] = ()
    dated: bool = False
    said: str | None = None
    tense: Tense | None = None


def _rule(memory_type: str, pattern: str, confidence: float, **more: object) -> Rule:
    compiled = re.compile(pattern.replace("ADV ", ADV), re.IGNORECASE)
    return Rule(memory_type, compiled, confidence, **more)  # type: ignore[arg-type]


def _called(name: str) -> Callable[[re.Match[str]], str]:
    return lambda match: name


def _counted(match: re.Match[str]) -> str | None:
    """What there are some of: "has two cats" and "has three cats" are values of one attribute, and
    "has a cat named Rex" is none.
    """
    found = _COUNT.match(match[0])
    return None if found is None else f"has {_plain(found['of']).rstrip('s')}"


def _by_group(prefix: str, group: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{prefix}{_plain(match[group])}"


def _plain(words: str) -> str:
    """What makes no difference to what is meant: articles, case, blanks."""
    kept = [word for word in words.lower().split() if word not in ("a", "an", "the", "some")]
    return " ".join(kept)


RULES: tuple[Rule, ...] = (
    # -- constraints
    _rule(
        "constraint",
        r"^i (?:am|have been) (?:not |no longer )?ADV (?:allergic|intolerant"
        r"|sensitive) to (?P<of>.+)$",
        0.95,
        constraint=("health",),
        topic=_by_group("allergy:", "of"),
    ),
    _rule(
        "constraint",
        r"^(?:i|my "
        + RELATIVE
        + r") (?:have|has) an? (?:[\w-]+ ){0,3}(?:allergy|intolerance)(?: to .+)?$",
        0.95,
        constraint=("health",),
    ),
    _rule(
        "constraint",
        r"^i am (?:not )?ADV (?:an? )?(?:strict )?" + _STATE + r"(?: .{0,30})?$",
        0.95,
        constraint=("health",),
    ),
    _rule(
        "constraint", r"^i have ADV " + _ILLNESS + r"(?: .{0,30})?$", 0.9, constraint=("health",)
    ),
    _rule(
        "constraint",
        r"^(?:i|we) (?:cannot|can not|must not|am not allowed to|am unable to|am not able to) ADV "
        r"(?:eat|drink|fly|drive|wear|smoke|swim|consume|tolerate|climb|ride|work (?:on|at"
        r"|after|before))\b(?P<of>.*)$",
        0.85,
    ),
    _rule(
        "constraint",
        r"^(?:i|we) (?:do not|never|can only|only|refuse to|avoid) ADV "
        + _HABIT
        + r"\b(?P<of>.*)$",
        0.8,
    ),
    _rule(
        "constraint",
        r"^my (?:[\w-]+ ){0,3}(?:budget|spending limit|limit"
        r"|maximum) is (?:[\w$\u20ac\u00a3]+ ){0,3}[$\u20ac\u00a3]?\d.*$",
        0.85,
        constraint=("budget",),
        topic=_called("budget"),
    ),
    _rule(
        "constraint",
        r"^(?:i|we) (?:do not|cannot) (?:want to |like to )?(?:spend|pay"
        r"|afford) more than (?:[\w$\u20ac\u00a3]+ ){0,2}[$\u20ac\u00a3]?\d.*$",
        0.8,
        constraint=("budget",),
    ),
    _rule(
        "constraint",
        r"^(?P<order>(?:always|never|from now on,?) (?:please )?" + _ORDERED + r" .{2,})$",
        0.75,
        said="{subject} asks: {order}",
    ),
    # -- preferences
    _rule(
        "preference",
        r"^my (?:ADV |all[- ]time |absolute )?favou?rite (?!(?:part|thing|one|way|bit"
        r"|person)\b)(?P<of>(?:[\w'-]+ ){1,5}?)(?:is|are|has always been) (?P<value>.+)$",
        0.95,
        topic=_by_group("favourite ", "of"),
    ),
    _rule(
        "preference",
        r"^(?P<value>[\w' -]{3,60}?) (?:is|are) (?:one of )?my (?:all[- ]time "
        r"|absolute )?favou?rites?(?P<of>(?: [\w'-]+){0,4})$",
        0.85,
        said="{value} is a favourite{of} of {object}",
    ),
    _rule(
        "preference",
        r"^(?:i|we) ADV (?:do not ADV )?(?:no longer )?(?:prefer|love|like|enjoy|adore|hate"
        r"|dislike|detest|cannot stand|favou?r)(?: to)? (?P<of>.+)$",
        0.85,
        topic=_by_group("taste ", "of"),
    ),
    _rule(
        "preference",
        r"^(?:i|we) would ADV prefer (?!(?:to|not|if|for)\b)(?!.*\b(?:refund|compensation"
        r"|certificate|card)\b)(?P<of>.+)$",
        0.65,
        topic=_by_group("taste ", "of"),
    ),
    _rule(
        "preference",
        r"^i am (?:not )?ADV (?:an? )?(?:big |huge |great |avid )?(?:fan of|fond of|into"
        r"|crazy about|keen on|passionate about|partial to|obsessed with) (?P<of>.+)$",
        0.85,
        topic=_by_group("taste ", "of"),
    ),
    # -- decisions
    _rule(
        "event",
        r"^(?:i|we) (?:have )?ADV (?:decided|settled|agreed|opted|resolved|made up my mind"
        r"|chosen|chose)(?: not)? (?:to|on|for|against|that) \S+ .+$",
        0.75,
        task=("decision",),
    ),
    _rule("event", r"^(?:i|we) (?:have )?ADV (?:chosen|chose) .+$", 0.65, task=("decision",)),
    # -- named facts
    _rule(
        "fact",
        r"^my (?:full |first |real )?name is (?!an? |the "
        r"|not )(?P<value>[^\W\d_][\w'.-]*(?: [^\W\d_][\w'.-]*){0,3})$",
        0.95,
        topic=_called("name"),
    ),
    _rule(
        "fact",
        r"^(?:you can |please |everyone )?calls? me (?P<value>[^\W\d_][\w'-]*)$",
        0.85,
        topic=_called("called"),
        said="{subject} is called {value}",
    ),
    _rule(
        "fact",
        r"^(?:i|we) ADV (?:live|reside|am based|am living|are living|am located"
        r"|are based) (?:in|near|on|outside|at|close to|with) .+$",
        0.9,
        topic=_called("lives in"),
    ),
    _rule(
        "fact",
        r"^(?:i|we) (?:have )?ADV (?:moved|relocated) (?:back )?(?:from [\w ,]+? )?to .+$",
        0.85,
        topic=_called("lives in"),
    ),
    _rule(
        "fact", r"^(?:i|we) (?:am|come|are) ADV from (?P<value>.+)$", 0.85, topic=_called("from")
    ),
    _rule("fact", r"^i (?:was born|grew up|was raised) (?:in|on|near) .+$", 0.9),
    _rule(
        "fact",
        r"^i ADV (?:work|am working|volunteer|intern) (?:as|at|for|in|from) .+$",
        0.85,
        topic=_called("works"),
    ),
    _rule("fact", r"^i am ADV (?:\d{1,3}|[a-z-]+) years old$", 0.95, topic=_called("age")),
    _rule(
        "fact",
        r"^i am (?:not |no longer )?ADV (?:married|divorced|engaged|single|widowed|a widow"
        r"|a widower)(?: to .+| with .+)?$",
        0.9,
        topic=_called("marital status"),
    ),
    _rule(
        "fact",
        r"^i am (?:not |no longer )?ADV (?:retired|unemployed|self-employed)$",
        0.9,
        topic=_called("works"),
    ),
    _rule("fact", r"^i am ADV left-handed$", 0.9),
    _rule(
        "fact",
        r"^i am ADV an? (?!bit|little|lot|few|couple|tad|huge|big|good|bad|mess|loss"
        r"|disappointed|frequent|regular|fan|person|human|robot|bot|ai\b|moment|idiot|morning"
        r"|night|sucker|total|expert)"
        r"(?P<value>[\w'-]+(?: [\w'-]+){0,4})$",
        0.75,
    ),
    _rule(
        "fact",
        r"^i ADV (?:study|am studying|am majoring in|major in|teach|coach|speak|play|own|run"
        r"|manage|collect|breed) (?:\w.+)$",
        0.75,
    ),
    _rule(
        "fact",
        r"^(?:i|we) have ADV "
        + _NUMBER
        + r" (?:(?!at |in |on |with |to |for |of |from )[\w-]+ ){0,2}(?:"
        + _OWNED
        + r")\b(?: .{0,60})?$",
        0.8,
        topic=_counted,
    ),
    _rule(
        "fact",
        r"^i have been (?:an? |married |retired |vegan|vegetarian|living |working |playing "
        r"|studying |teaching |divorced ).{2,80}$",
        0.7,
    ),
    _rule(
        "fact",
        r"^my (?:[\w-]+ ){0,2}?"
        + _ATTRIBUTE
        + r" (?:is|are) (?!already|not|provided|correct|wrong|in |on |below|above|fine|good|ok"
        r"|an? )(?P<value>.+)$",
        0.85,
        topic=lambda match: _attribute(match[0]),
    ),
    _rule(
        "fact",
        r"^my (?:reservation|booking|confirmation|order|ticket|flight|invoice|case"
        r"|policy)(?: (?:id|number|code))? (?:is|are) (?=\S*\d)(?P<value>[\w#-]{4,24})$",
        0.8,
    ),
    _rule(
        "fact",
        r"^my (?:[\w-]+ )?"
        + RELATIVE
        + r"(?:'s name is| is called| is named| are called| are named"
        r"|,? (?-i:[A-Z])\w+,?)? (?:ADV )?" + _VERBS + r"$",
        0.75,
    ),
    _rule("fact", r"^my (?:[\w-]+ )?" + RELATIVE + r"(?:'s name is| is called| is named) .+$", 0.9),
    # -- dated events
    _rule(
        "event",
        r"^(?:i|we) (?:have|am having|are having) (?:an? |my |our |to be at )?(?:[\w'-]+ ){0,4}"
        + _OCCASION
        + r"\b.*$",
        0.8,
        dated=True,
    ),
    _rule(
        "event",
        r"^my (?:[\w'-]+ ){0,4}"
        + _OCCASION
        + r" (?:is|was|starts?|begins?|ends?|has been moved|got moved).*$",
        0.8,
        dated=True,
    ),
    _rule(
        "event",
        r"^(?:i|we) ADV " + _PLANS + r" (?!.*\bif\b)(?!try\b|to try\b|be \w+ing out\b).+$",
        0.7,
        dated=True,
    ),
    _rule(
        "event",
        r"^(?:i|we) (?:have )?ADV "
        + _DONE
        + r" (?!on |in |last |next |this |at |for |yesterday|today|\w+ ago)(?!.*\bif\b).+$",
        0.7,
        dated=True,
        tense="past",
    ),
)


_WHOSE = re.compile(
    r"^my (?:[\w-]+ ){0,2}?(?P<name>" + _ATTRIBUTE + r") (?:is|are) ", re.IGNORECASE
)


def _attribute(clause: str) -> str:
    found = _WHOSE.match(clause)
    return _plain(found["name"]) if found else ""
