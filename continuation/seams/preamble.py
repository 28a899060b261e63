"""Preambles, words to the reader before a model continues: the evidence for and against one.

No single sign is enough. A preamble fits badly where the text stopped (a capital letter in the
middle of a word, a sentence in a JSON document, another script), it is set apart from what
follows, it mostly speaks of continuing, and what follows it continues the text at the cut. Each
sign gives some points; a preamble whose wording is not in our lists needs more of the other signs.
"""
# ruff: noqa: RUF001 - the letters that look like Latin ones are those of other languages

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Final

from continuation.seams.text import Cut, Form, is_indentation, seen_with, shape

#: Points from which a paragraph counts as a preamble; no single piece of evidence reaches it.
ENOUGH: Final = 5.5
#: Characters within which a preamble must end.
LONGEST: Final = 400

_CODE_SIGNS: Final = re.compile(
    r"[={}<>|\\]|\w\(|;\s*$|\w\.\w+\W*$|\w_\w|^\s*[#@]|^ {4}|^\t|,\s*$", re.MULTILINE
)
#: Each line of a preamble begins with a word, perhaps in brackets, quotes or asterisks.
_SENTENCE_LINE: Final = re.compile(r"[\[(*_\"“«]{0,3}[^\W_]")
_WRAPPED: Final = re.compile(
    r"\([^()]*\)\W*|\[[^\[\]]*\]\W*|\*\*[^*]*\*\*\W*|[*][^*]*[*]\W*|_[^_]*_\W*", re.DOTALL
)
_MARKS: Final = "([*_"
_DIGITS: Final = re.compile(r"\d+")
_WORDS: Final = re.compile(r"[^\W\d_]+")
_SENTENCE_GAP: Final = re.compile(r"(?<=[.!?…:。！？：])\s+|\n")
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n\s*$")
_NO_PROSE: Final = frozenset({Form.CODE, Form.JSON, Form.CSV, Form.YAML, Form.HTML})


def preamble_evidence(cut: Cut, opening: str, rest: str) -> float:
    """Return points for `opening`, the first part of a later attempt, being a preamble to `rest`.

    0.0 if it does not have the shape of one. Repetitions in `rest` are not counted here.
    """
    phrase = opening.strip()
    if not _has_shape(phrase, opening) or _is_like_the_text(cut, opening):
        return 0.0
    known = _speaks_of_going_on(cut, phrase)
    misfit = _misfit(cut, opening, phrase)
    if known:
        on_its_line = opening[0].isspace() or "\n" not in opening
        if len(phrase) > 260 or phrase.count("\n") > 4 or (phrase[0].islower() and on_its_line):
            return 0.0
    elif not _may_be_unknown(cut, opening, phrase):
        return 0.0
    elif misfit < 2.5:  # only a repetition of anchor or answer after it can prove it a preamble
        return 1.0 if phrase[-1] in _COLONS else 0.0
    if "\n" not in opening and known < 2:
        return 0.0
    misfit += 2.0 if known and _in_other_words(cut, phrase) else 0.0
    return misfit + _stands_apart(opening, phrase) + known + _goes_on(cut, rest)


def _has_shape(phrase: str, opening: str) -> bool:
    """Whether this is a sentence or two, ended by a newline or a colon, and not code."""
    if not 2 <= len(phrase) <= LONGEST or opening.count("\n") > 5 or _CODE_SIGNS.search(phrase):
        return False
    wrapped = _WRAPPED.fullmatch(phrase) is not None
    apart = opening.rstrip(" \t\r").endswith("\n") or phrase[-1] in _COLONS
    if not apart or (phrase[0] in _MARKS and not wrapped):
        return False
    if not all(_SENTENCE_LINE.match(line) for line in phrase.split("\n") if line.strip()):
        return False
    ended = phrase[-1] in _ENDS or wrapped
    return (ended and (len(phrase.split()) > 1 or len(phrase) <= 24)) or _is_wide(phrase)


def _is_like_the_text(cut: Cut, opening: str) -> bool:
    """Whether the text has the same lines except for numbers: then these lines belong to it.

    The first line may be the rest of the line that was cut, and the last line may break off.
    """
    known = {_DIGITS.sub("0", line.strip()) for line in cut.near.split("\n")}
    first, *more = (_DIGITS.sub("0", line.strip()) for line in opening.strip().split("\n"))
    begun = _DIGITS.sub("0", (cut.line + opening.split("\n")[0]).strip())
    if first not in known and begun not in known:
        return False
    *whole, last = more or [""]
    return all(line in known for line in whole) and any(line.startswith(last) for line in known)


def _in_other_words(cut: Cut, phrase: str) -> bool:
    """Whether `phrase` has no word of a long text before it: another language, most likely."""
    spoken, near = ({*_WORDS.findall(one.lower())} for one in (phrase, cut.near))
    return len(spoken) > 2 and len(near) >= 40 and spoken.isdisjoint(near)


def _is_wide(text: str) -> bool:
    """Whether a text has Chinese, Japanese or Korean, in which a word is a character or two."""
    return any(char >= "\u2e80" for char in text)


def _may_be_unknown(cut: Cut, opening: str, phrase: str) -> bool:
    """Whether unknown wording is a sentence in a paragraph, or at least a line, of its own."""
    if len(phrase) > 160 or "\n" in phrase or not phrase[0].isalpha() or phrase[0].islower():
        return False
    if any(phrase.count(left) != phrase.count(right) for left, right in ("()", "[]", "“”")):
        return False
    words = _is_wide(phrase) or len(phrase.split()) >= 3
    own = bool(_BLANK_LINE.search(opening)) or (cut.inside_line and phrase[-1] in _COLONS)
    return words and own and phrase[-1] in _ENDS and phrase.count('"') % 2 == 0


def _misfit(cut: Cut, opening: str, phrase: str) -> float:
    """Return points for words that do not fit where the text stopped."""
    spaced = opening[0].isspace()
    if _script(phrase) not in {_script(char) for char in set(cut.near[-400:])}:
        return 3.0 if cut.inside_line or not spaced else 0.0
    if cut.inside_line:
        return _misfit_in_line(cut, opening, phrase)
    if spaced:
        return 0.0
    if cut.line:
        return 2.0 if cut.form in _NO_PROSE else float(phrase[0].isupper())
    return _foreign_to(cut, phrase) or float(_broken_sentence(cut))


def _misfit_in_line(cut: Cut, opening: str, phrase: str) -> float:
    spaced = cut.text[-1].isspace() or opening[0].isspace()
    if cut.form in _NO_PROSE and not opening[0].isspace() and _RESUMING.search(phrase):
        return 2.5
    new = seen_with(cut.near, opening[:2]) < 1
    starts_anew = phrase[0].isupper() or phrase[0] in _MARKS
    if cut.text[-1] in _OPENERS or not starts_anew:
        return float(new)
    if cut.near.rstrip()[-1:] in _STOPS and not (cut.near[-2:-1].isdigit() and not spaced):
        return 0.0 if spaced else 1.0
    return 2.0 if spaced and not new else 3.0


def _broken_sentence(cut: Cut) -> bool:
    """Whether the line that ended was wrapped in the middle of a sentence."""
    last = cut.near.rstrip("\n")[-1:]
    return not cut.near.endswith("\n\n") and (last.islower() or last == ",")


def _script(text: str) -> str:
    """Return the script of the first letter of `text`, from its Unicode name; `""`: no letter."""
    for char in text:
        if char.isalpha():
            return unicodedata.name(char, "?").partition(" ")[0].partition("-")[0]
    return ""


def _foreign_to(cut: Cut, phrase: str) -> float:
    """Return points for a sentence in a kind of text that has no sentences."""
    sentence = (_is_wide(phrase) and len(phrase) > 3) or len(phrase.split()) > 1
    if cut.form not in _NO_PROSE or not (sentence or phrase[0] in _MARKS):
        return 0.0
    return 2.5 if _is_certainly_no_prose(cut) else 1.5


def _is_certainly_no_prose(cut: Cut) -> bool:
    if cut.fence is not None:
        return bool(cut.fence.info) and cut.form in _NO_PROSE
    return cut.form in (Form.JSON, Form.CSV)


def _stands_apart(opening: str, phrase: str) -> float:
    blank_line = bool(_BLANK_LINE.search(opening))
    if blank_line and phrase[0] in "([" and _WRAPPED.fullmatch(phrase):
        return 2.5  # an aside
    announces = phrase.rstrip("*_")[-1:] in _COLONS
    return 2.0 if blank_line and announces else 1.5 if blank_line or announces else 0.5


def _speaks_of_going_on(cut: Cut, phrase: str) -> float:
    """Return points for known stems, at most 4; fewer if the text has the stem, 0 for its words."""
    found = _RESUMING.search(phrase)
    if found and _SENTENCE_GAP.split(phrase[found.start() :])[0] in cut.near:
        return 0.0  # the text contains the same words
    points = 0.0 if found is None else 1.0 if found[0].lower() in cut.near.lower() else 2.0
    points += 0.5 if _AGREEING.match(phrase) else 0.0
    return points + (1.5 if len(phrase) <= 160 and _OF_ITSELF.search(phrase) else 0.0)


def _goes_on(cut: Cut, rest: str) -> float:
    """Return points for `rest` continuing at the cut: the word, the indentation or the code."""
    if not rest.strip():
        return 0.0
    if rest[0].islower():
        goes_on = cut.inside_line or _broken_sentence(cut)
    elif cut.inside_line:
        goes_on = seen_with(cut.near, rest[:2]) >= 2
    elif not cut.line and _steps_as_before(cut, rest):
        goes_on = True
    elif cut.line:
        space = rest[: len(rest) - len(rest.lstrip(" \t"))]
        goes_on = is_indentation(cut.near, cut.line + space) or is_indentation(cut.near, space)
    else:
        marker = re.match(r"[-*+|] |\d+[.)] ", rest)
        same = marker is not None and cut.last_line.lstrip()[:1] == rest[0]
        goes_on = same or (_is_certainly_no_prose(cut) and not re.match(r"[A-Z]\w* \w+ \w+", rest))
    return 1.5 if goes_on else 0.0


def _steps_as_before(cut: Cut, rest: str) -> bool:
    """Whether the step from the last line to `rest`, by shape, occurs twice elsewhere."""
    step = (shape(cut.last_line), shape(rest.partition("\n")[0]))
    return not cut.near.endswith("\n\n") and [*pairwise(cut.shapes)].count(step) >= 2


def ends_of_openings(head: str) -> list[int]:
    """Return where a preamble at the start of `head` may end: after a newline, after a colon."""
    ends = [found.end() for found in re.finditer(r"\n[ \t\r]*\n|\n", head[: LONGEST + 20])]
    colon = re.match(r"[^\n:\uff1a]{2,160}[:\uff1a…][^\S\n]+(?=\S)", head)
    if colon:
        ends.append(colon.end())
    return sorted(set(ends))[:6]


def only_says_complete(cut: Cut, text: str) -> bool:
    """Whether a whole attempt only states that there is nothing to continue.

    After a whole sentence or block such words may be the answer's own ("That is all the code you
    need."); there they must also refer back to the answer.
    """
    phrase = text.strip()
    if not 8 <= len(phrase) <= 300 or "\n\n" in phrase or _CODE_SIGNS.search(phrase):
        return False
    if not (_COMPLETE.search(phrase) and _ANSWER.search(phrase)) or phrase[0].islower():
        return False
    ended = cut.fence is None and (not cut.inside_line or cut.near.rstrip()[-1:] in _STOPS)
    return not ended or _POINTS_BACK.search(phrase) is not None


# The stems by which models speak of continuing: one piece of evidence, never proof --------------

#: Characters that end a sentence, that announce something, that may end a preamble.
_STOPS: Final = ".!?。！？"
_COLONS: Final = ":：…"
_ENDS: Final = ".!?…:。！？：।؟"
#: After these a capital letter is not unusual.
_OPENERS: Final = "([{\"'`*_#>/“‘«-"

#: Continuing, having been cut off, apologising.
_RESUMING: Final = re.compile(
    r"\b(?:continu|contin[uú]|resum|left off|cut off|cut short|truncat|interrupt|apolog|sorry"
    r"|pick\w* (?:it |this |things )?(?:back )?up|rest of|the rest\b|remaind|remaining"
    r"|go(?:ing)? on\b|carry\w* on|back to (?:it|where)|next (?:part|lines?|section|chunk)"
    r"|previous (?:response|message|answer|output)"
    r"|fortsetz|setze\b.{1,60}\bfort\b|fortfahr|fahre\b|weiter|entschuldig|unterbr|abgebroch"
    r"|abbruch|abgeschnitt|restlich|rest de[rs]\b|der rest\b"
    r"|suite\b|reprend|repren|désolé|desole|excus|interromp|poursui|coupé"
    r"|segu(?:ir|ire|o|iamo|imos)\b|prossegu|riprend|retom|disculp|lo siento|perd[oó]n\b"
    r"|desculp|scus[ai]|mi dispiace|interrump|cortad|resto\b|verder|vervolg|onderbr"
    r"|forts[aä]t|fortsæt|fortset|förlåt|ursäkt|beklag|unnskyld|undskyld|resten\b"
    r"|kontynu|przepras|dalsz|reszt|pokrač|omlouv|ospravedl|zbyt\w{1,2}\b|folytat|elnéz"
    r"|scuze|jatk|pahoittel|anteeksi|devam\b|özür|kaldığ|kalan\b"
    r"|lanjut|melanjut|maaf\b|sisanya|tiếp tục|tiếp theo|xin lỗi|còn lại"
    r"|продолж|извин|прости|прерв|остальн|оборв|остат|продовж|вибач|перепрош|решт|продълж"
    r"|συνεχ|συγγν|υπόλοιπ)"
    r"|המשך|ממשיכ|סליחה|מתנצל|تابع|أكمل|اكمل|استكمال|عذر|آسف|أسف|بقي|انقطع"
    r"|ادامه|متأسف|ببخشید|پوزش|जारी|क्षमा|माफ|शेष|ต่อ|ขออภัย|ขอโทษ"
    r"|続き|続け|申し訳|すみません|失礼|中断|途切|再開|残り"
    r"|继续|繼續|接着|接著|接上|抱歉|对不起|對不起|中斷|剩余|剩餘|截断|截斷|续写"
    r"|계속|이어서|이어|죄송|미안|나머지|중단|끊",
    re.IGNORECASE,
)

#: Agreeing to something, at the start.
_AGREEING: Final = re.compile(
    r"[\s*_(\[]*(?:sure|certainly|of course|okay|ok|alright|all right|understood|got it"
    r"|absolutely|right|yes|yeah|no problem|no worries|thank|here(?:'s|’s| is| are)|noted"
    r"|let me|let's|i'll|i’ll|i will|great|gladly|happy to|my "
    r"|claro|por supuesto|aqu[ií]|vale|bien sûr|d'accord|voici|voilà|natürlich|gern|hier|klar"
    r"|certo|ecco|certamente|конечно|хорошо|вот|понял|tabii|tamam|işte|بالطبع|حسن|إليك|बिल्कुल"
    r"|好的|好|当然|當然|明白|了解|收到|以下|はい|承知|わかり|分かり|もちろん|では|네|알겠|물론|다음)",
    re.IGNORECASE,
)

#: Speaking about the answer: such words are hardly ever part of one.
_OF_ITSELF: Final = re.compile(
    r"left off|i stopped|(?:was|got|were) (?:cut|interrupted)|cut off|cut short|truncated"
    r"|the last (?:token|line|word|character)|(?:length|output|token) limit|of interruption"
    r"|abbruch|stehen ?geblieben|aufgehört"
    r"|où je me suis|donde (?:me|lo) |(?:que|onde) parei|da dove m|waar ik |gdzie przerwa"
    r"|previous (?:response|message|answer|output)"
    r"|^\W*(?:continu(?:ing|ation|ed)|resuming|picking up|sorry|apologies|i apologi[sz]e"
    r"|my apologies|lo siento|perd[oó]n|disculp|désolé|desculp|scus[ai]|mi dispiace|entschuldig"
    r"|извин|прости)"
    r"|^\W*(?:fortsetzung|suite\b|continuaci|continua[cç]|продолж|继续|繼續|接着|接上|続き|계속|이어)"
    r"|申し訳|抱歉|对不起|죄송",
    re.IGNORECASE,
)

#: Being complete, having nothing to add.
_COMPLETE: Final = re.compile(
    r"(?:already|fully|now|is|was|been|sent) (?:\w+ )?complete"
    r"|nothing (?:\w+ )?(?:to|left|remain)|no (?:further|more|additional|other)"
    r"|(?:wasn['’]t|isn['’]t|didn['’]t|was not|did not|not) (?:actually )?(?:get )?"
    r"(?:cut|truncat|interrupt)"
    r"|(?:already|been|is|am) (?:finished|done|ended)"
    r"|that(?:['’]s| is| was) (?:all|everything|the (?:end|whole|complete))"
    r"|end of (?:the )?(?:response|answer|document|file|message)"
    r"|vollständig|abgeschlossen|nichts (?:mehr|weiter)|complet[eao]?s?\b|terminad|finalizad"
    r"|rien (?:de plus|à ajouter)|nada más|niente (?:altro|da)|заверш|законч|полност|нечего"
    r"|已经完|已完|完整|没有更多|沒有更多|已结束|无需|完了|完成|以上です|ありません|완료|완성|없습니다",
    re.IGNORECASE,
)

#: Referring back to the answer, or denying that anything is missing.
_POINTS_BACK: Final = re.compile(
    r"\balready|above|previous|earlier|\b(?:my|last) (?:answer|response|message|output|reply)"
    r"|nothing (?:\w+ )?(?:to|left|remain)|no (?:further|more|additional|other)|n['’]t\b|\bnot\b"
    r"|bereits|schon|oben|nichts|déjà|rien|ci-dessus|\bya\b|nada|anterior|arriba|già|niente|sopra"
    r"|\bjá\b|acima|уже|выше|нечего|已|上面|以上|没有|沒有|无需|すでに|既に|ありません|이미|없",
    re.IGNORECASE,
)

#: Words for the answer, in a sentence that states it is complete.
_ANSWER: Final = re.compile(
    r"response|answer|message|output|reply|text|code|file|document|content|explanation|list"
    r"|article|everything|to (?:add|continue|say|write)"
    r"|antwort|nachricht|hinzu|réponse|respuesta|mensaje|resposta|risposta|ajouter|agregar"
    r"|añadir|aggiungere|ответ|сообщени|добав"
    r"|回答|回复|回覆|内容|內容|答案|回應|出力|応答|답변|응답|내용",
    re.IGNORECASE,
)
