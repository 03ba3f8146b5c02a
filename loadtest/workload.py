"""What each request asks: which tier, which prompt length, which text. Pure and random-access by index.

The design is that of a paired experiment. A stage's requests come in blocks of one request per tier, in random
order inside the block; within each tier, prompt-length classes come in blocks of one per class, shuffled
independently of the other tiers. So arms are interleaved in time, balanced at every moment, and a drift of the
server hits both alike. Everything follows from (seed, stage, index): no state, no clock.
"""

from dataclasses import dataclass

import numpy as np

from loadtest.plan import Plan, Tier

# Common short English words: one token each, with their leading space, in most vocabularies.
_WORDS = tuple(
    """able acid age air arm army art atom baby back ball band bank base bath bear beat bed bell belt bend best bill
    bird bit blow blue board boat body bone book born box boy bread brick bridge bright broad brown brush build burn
    bus cake call calm camp card care case cat cause cell chain chair chalk change cheap chest chief child circle
    city class clay clean clear clock cloud coal coast coat cold color common cook cool copper copy cord corn cost
    cotton cover cow crack credit crime cross cry cup current curve cut damp dark date day dead deal dear death debt
    deep degree desk detail dog door doubt down drain draw dress drink drop dry dust ear early earth east edge egg
    end engine equal error even event exact expert eye face fact fall false family far farm fat father fear feel
    field fight fire first fish fixed flag flame flat flight floor flow flower fly fold food foot force fork form
    fowl frame free fresh friend front fruit full game garden gate general girl give glass gold good grain grass
    gray great green grip group growth guide gun hair hand hard harbor hat head heart heat help high hill history
    hold hole home hope horn horse hour house humor ice idea ink iron island jelly join judge jump keep key kind
    kiss knee knife knot land last late laugh law lead leaf left leg letter level life lift light like limit line
    lip list living lock long look loss loud love low machine man map mark market mass match meal measure meat
    metal middle milk mind mine minute mist money month moon morning mother motion mountain mouth move muscle music
    nail name narrow nation near neck need nerve net new news night noise normal north nose note number nut offer
    office oil old open orange order oven page pain paint paper part past path peace pen person picture pig pin pipe
    place plane plant plate play point pool poor pot powder power press price print prison prose pull pump pure push
    quick quiet rail rain range rat ray read red regret rest rice right ring river road rod roll roof room root
    rough round rule run sad safe sail salt same sand scale school sea seat seed self sense shade shake sharp sheep
    shelf ship shirt shock shoe short side sign silk silver simple size skin sky sleep slip slope slow small smash
    smile smoke smooth snake snow soap soft solid son song sort sound soup south space spade sponge spoon spring
    square stage stamp star start state steam steel stem step stick stiff still stone stop store storm street strong
    sugar summer sun surprise sweet system table tail talk tall taste tax test thick thin thread thumb ticket tight
    time tin toe tongue tooth top touch town trade train tree trick true turn twist unit value verse view voice
    walk wall war warm wash waste watch water wave wax way weather week weight west wet wheel white wide wind window
    wine wing winter wire wise woman wood word work worm wound wrong year yellow young""".split()
)
_WORD_ARRAY = np.array(_WORDS, dtype=object)
_SALT_ORDER, _SALT_CLASS, _SALT_TEXT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Request:
    """One request before it is sent. ``prompt_tokens`` is aimed at; what the server counts may differ."""

    index: int
    """Unique within the run, in the order of sending."""
    stage: str
    warmup: bool
    tier: Tier
    prompt_tokens: int
    max_tokens: int


def request(plan: Plan, stage_number: int, position: int, *, index: int) -> Request:
    """The request at ``position`` (0, 1, …) of the stage ``stage_number`` (0, 1, …); ``index`` is its run-wide number."""
    stage = plan.stages[stage_number]
    block, place = divmod(position, len(plan.tiers))
    tier_number = _shuffled(len(plan.tiers), plan.seed, _SALT_ORDER, stage_number, block)[place]
    classes = plan.workload.prompt_tokens
    class_block, class_place = divmod(block, len(classes))
    class_number = _shuffled(len(classes), plan.seed, _SALT_CLASS, stage_number, tier_number, class_block)[
        class_place
    ]
    return Request(
        index=index,
        stage=stage.name,
        warmup=stage.warmup,
        tier=plan.tiers[tier_number],
        prompt_tokens=classes[class_number],
        max_tokens=plan.workload.output_tokens,
    )


def prompt_text(plan: Plan, request: Request) -> str:
    """The prompt of a request: words that no other request of this plan and seed starts with.

    The number of words is ``prompt_tokens / tokens_per_word``, rounded, at least one. The first word tells
    requests apart (a number in letters), so that no prefix cache is hit by accident.
    """
    count = max(1, round(request.prompt_tokens / plan.workload.tokens_per_word))
    rng = np.random.default_rng((plan.seed, _SALT_TEXT, request.index))
    words = _WORD_ARRAY[rng.integers(0, len(_WORDS), size=count)]
    words[0] = _spelled(plan.seed % 1_000_003 * 100_000_000 + request.index)
    return " ".join(words)


def _spelled(number: int) -> str:
    """Write a number in base 26 letters, so that it is one word and unlike any of ours."""
    letters = ""
    while True:
        number, digit = divmod(number, 26)
        letters = chr(ord("a") + digit) + letters
        if number == 0:
            return "q" + letters


def _shuffled(count: int, *key: int) -> list[int]:
    order: list[int] = np.random.default_rng(key).permutation(count).tolist()
    return order
