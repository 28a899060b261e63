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
#: Characters within which a preamble must end, and its lines of words.
LONGEST: Final = 400
_MOST_LINES: Final = 3

_CODE_SIGNS: Final = re.compile(
    r"[={}<>|\\]|\w\(|;\s*$|\w\.\w+\W*$|\w_\w|^\s*[#@]|^ {4}|^\t|,\s*$", re.MULTILINE
)
#: Each line of a preamble begins with a word, perhaps in brackets, quotes or asterisks.
_SENTENCE_LINE: Final = re.compile(r"[\[(*_\"“«]{0,3}[^\W_]")
_SENTENCE_START: Final = re.compile(r"\s*[^\w\s|<{}]{0,3}\s?(?![a-zß-öø-ÿа-яё])[^\W\d_]")
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


def may_begin_words(text: str, head: str) -> bool:
    """Whether `head`, after `text`, may begin with words to the reader, in any script.

    In a script with capital letters a sentence begins with one, perhaps after a mark.
    """
    if not head.strip():
        return True
    if text.endswith("_") and head[0].isalnum():
        return False  # in the middle of a name
    return _SENTENCE_START.match(head) is not None and not unicodedata.category(
        head.lstrip()[0]
    ).startswith("M")


def may_be_words(opening: str) -> bool:
    """Whether an opening before the anchor may be words to the reader: no code, and a few lines."""
    phrase = opening.strip()
    lines = [line for line in phrase.split("\n") if line.strip()]
    words = any(map(str.isalnum, phrase)) and not _CODE_SIGNS.search(phrase)
    return words and len(opening) <= LONGEST and len(lines) <= _MOST_LINES


def stands_alone(cut: Cut, opening: str, rest: str) -> bool:
    """Whether an opening is proven to be no part of the answer, with no repetition after it.

    It could be the rest of the line that was truncated, and that is worse to lose than words are to
    keep. So it must be whole sentences on lines of their own, and either `rest` continues the word
    or sentence at the cut, or the sentences only say that an answer is continued.
    """
    phrase = opening.strip()
    if not opening.rstrip(" \t\r").endswith("\n"):
        return False
    for sentence in _SENTENCE_GAP.split(phrase):
        if sentence[:1].islower() or not any(map(str.isalpha, sentence)):
            return False
    own = only_of_itself(phrase)
    no_sentence = cut.form in _NO_PROSE and (phrase[-1] in _COLONS or phrase[0] in _MARKS + "[")
    if own and (no_sentence or _STRICT.search(phrase)):
        return True
    if _misfit(cut, opening, phrase) < 2.0:
        return False
    if own:
        return True
    if _script(phrase) not in {_script(char) for char in set(cut.near[-400:])}:
        return True
    if cut.inside_line and cut.form not in _NO_PROSE:
        apart = _BLANK_LINE.search(opening) or phrase[-1] in _COLONS
        return bool(apart) and continues_sentence(rest)
    return _goes_on(cut, rest) > 0


def continues_sentence(rest: str) -> bool:
    """Whether `rest` begins with a small letter or an inner mark: in the middle of a sentence."""
    first = rest[1:2] if rest[:1] == " " else rest[:1]
    return first.islower() or first in _INNER


def only_of_itself(opening: str) -> bool:
    """Whether every word of an opening is one with which models speak of continuing an answer."""
    phrase = opening.strip()
    if _is_wide(phrase):
        return _OWN_WIDE.fullmatch(phrase) is not None and _SURE_WIDE.search(phrase) is not None
    words = _OWN_WORD.findall(phrase.lower())
    return _SELF.search(phrase) is not None and all(
        word in _OWN_WORDS or _SELF.match(word) for word in words
    )


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


def only_says_complete(text: str) -> bool:
    """Whether a whole attempt only states that an earlier message of the model's was complete.

    Other statements of completeness may be the answer's own last sentence ("No further changes to
    the code are needed."), so they are kept.
    """
    phrase = text.strip()
    if not 8 <= len(phrase) <= 240 or "\n\n" in phrase or _CODE_SIGNS.search(phrase):
        return False
    sentences = [one for one in _SENTENCE_GAP.split(phrase) if one]
    if len(sentences) > 2 or any(one[0].islower() for one in sentences):
        return False
    says = [bool(_MY_MESSAGE.search(one) and _COMPLETE.search(one)) for one in sentences]
    return any(says) and all(
        said or _COMPLETE.search(one) or _AGREEING.match(one)
        for said, one in zip(says, sentences, strict=True)
    )


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

#: An earlier message, as the model speaks of its own.
_MY_MESSAGE: Final = re.compile(
    r"\b(?:my|(?:the|this|that) (?:previous|last|above|earlier)) "
    r"(?:(?:previous|last|above|earlier) )?(?:response|answer|message|output|reply)\b"
    r"|\bthe (?:response|answer|message|output|reply|text|code|file|document) above\b"
    r"|\bmeine (?:(?:vorherige|vorige|letzte|obige) )?(?:antwort|nachricht)\b"
    r"|\bdie (?:vorherige|vorige|letzte|obige) (?:antwort|nachricht)\b|\bdie antwort oben\b"
    r"|\bma (?:précédente |dernière )?réponse\b|\bla réponse (?:précédente|ci-dessus)\b"
    r"|\bmi (?:anterior |última )?(?:respuesta|mensaje)\b|\bla respuesta anterior\b"
    r"|\b(?:a )?minha (?:última )?resposta\b|\ba resposta (?:anterior|acima)\b"
    r"|\bla mia (?:ultima )?risposta\b|\bla risposta (?:precedente|sopra)\b"
    r"|\bмо[йё] (?:предыдущ\w+ |последн\w+ )?(?:ответ|сообщение)"
    r"|\bпредыдущ\w+ (?:ответ|сообщение)"
    r"|(?:我的|我之前的|上面的|上一条|以上)(?:回答|回复|回覆|答案|消息)"
    r"|(?:先ほどの|前の|上記の|私の)(?:回答|応答|返答)|(?:제|이전|위의|앞의) ?(?:답변|응답)",
    re.IGNORECASE,
)

#: Stems of words for continuing, and for having been interrupted.
_SELF: Final = re.compile(
    r"\b(?:contin[uú]|resum|left off|cut[- ]?off|cut short|truncat|interrupt|apolog|sorry|rest\b"
    r"|remain"
    r"|pick\w* (?:it |this )?up|carry\w* on|going on|go on\b|back to it|next lines?\b|missing"
    r"|fortsetz|weiter|entschuldig|unterbr|abgebroch|abbruch|abgeschnitt|fort\b|suite\b|repren"
    r"|désolé|excus|interromp|poursui|coup(?:é|ure)|disculp|lo siento|perd[oó]n|desculp|retom|scus"
    r"|riprend|verder|vervolg|gebleven|kontynu|przepras|fortsätt|fortsett|jatk|devam|folytat"
    r"|продолж|извин|прерв|остальн|продовж|вибач|συνεχ|συγγν)",
    re.IGNORECASE,
)
#: Words for an interruption, and for the model's own answer: a document hardly speaks of these.
_STRICT: Final = re.compile(
    r"left off|cut[- ]?off|cut short|truncat|interrupt|apolog|sorry|resuming|where i |was cut"
    r"|previous (?:message|response|answer|output)|last token|the output"
    r"|my (?:\w+ )?(?:answer|response|message|output|reply)|the (?:response|answer|message)\b"
    r"|abbruch|abgebroch|abgeschnitt|unterbr|entschuldig|aufgehört|stehengeblieben|meine antwort"
    r"|interruption|coup(?:é|ure)|désolé|où je me suis|ma réponse"
    r"|interrupci|lo siento|disculp|por el corte|me quedé|mi respuesta"
    r"|interrup[cç]|desculp|onde parei|minha resposta|interruzione|scus[ai]|fermato|mia risposta"
    r"|gebleven|przerw|przepras|прерв|извин|остановился|мой ответ|[\u2e80-\uffff]",
    re.IGNORECASE,
)
_OWN_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
#: The words of sentences that only speak of continuing an answer.
_OWN_WORDS: Final = frozenset(
    """
    a ab about above abruptly absolutely after again ahead ai al all alles alors alright am an and
    answer antwoord antwort apology après aqui aquí archivo are arquivo arrêté arrêtée as asked at
    aufgehört back be because been before begin beginning below bereits bien break but by can caused
    certainly certo che claro code com complete completing con confusion content continuation
    continúa cortada corte cortó course cut część código d'accord da dalsza das datei de del delay
    della dem den der des desde det di did die dieser directly do document documento dokument don't
    donc donde dove du där earlier ecco el em en end ended enough ero error es esattamente estaba
    está et exactamente exactement exactly exatamente falta faltaba faltou fehlende fermato fichier
    file finish finished finishing foi folgen folgt follow following follows for fortsetzung from
    från full für ga geht gehts genau gern gerne get getting go goes going good got habe had
    happened happening happy has have having here here's here’s het hier hit här i i'll i'm i've ich
    ici ik il immediately in incomplete inconvenience interrotta interrupted interruption
    interruzione is ist it it's its it’s i’ll i’m i’ve jag je keep keeping klar la last le left leid
    length les let let's let’s limit line lines list lo long los lost là ma manca mancava manquait
    manque me meine message mi mia mid mid-sentence miejsca mijn minha mir mon my natürlich next no
    not nothing now nun o od of off ok okay om on onde onderbreking onward or oto out output over où
    page paragraph parei part parte partir patience pause pela per pick picking place please point
    ponto por pour previous problem proceed przerwania punto que quedado quedé quedó qui ran reached
    remainder reply requested response resposta respuesta rest restliche restlichen resto result
    resumed resumption reszta right riprendo risposta réponse sa same se section see segue seguindo
    seguir selbstverständlich sentence setze shall short sigo slutade so sofort space spot start
    starting stata stehengeblieben stelle still stop stopped story stream such suis suivant suivante
    supuesto sure svaret sûr teil testo text texte texto thank thanks that that's that’s the then
    there there's thing this those to token too tut und understand understood unfinished until up
    vale van var very voici voilà von voor waar war was we we'll we're were what where where's
    where-ever which wie will with without wo word words would writing wrote wurde y yes you you're
    you've your z za zum zur è été вот где за конечно места мой оставшаяся оставшийся остановилась
    остановился остаток ответ прервался прерывание с текста того файла часть
    """.split()  # noqa: SIM905 - read as words
)
#: The same of Chinese, Japanese and Korean, which do not all separate words.
_OWN_WIDE: Final = re.compile(
    r"(?:好的|好|当然|當然|抱歉|对不起|對不起|不好意思|我|将|會|会|来|继续|繼續|接着|接著|接上|上文|上面|回答|回复|回覆"
    r"|被|中断|中斷|截断|截斷|了|刚才|剛才|以下|下面|是|剩余|剩餘|部分|内容|內容|从|從|处|處|地方|的|输出|輸出|这|這|里|裡"
    r"|申し訳ありません|申し訳ございません|すみません|失礼しました|はい|承知しました|続き|続け|から|ます|です|は|を|の|が|で|に|と"
    r"|以下|とおり|通り|中断|途中|途切れ|再開|した|します|ました|ところ|箇所|先ほど|前回|回答|出力|残り|部分"
    r"|네|죄송합니다|계속해서|계속|이어서|작성하겠습니다|작성합니다|드리겠습니다|나머지|부분|부분은|부분입니다|다음과|같습니다"
    r"|중단된|끊긴|곳부터|부터|답변|이전|응답|여기서|입니다"
    r"|[\s，,、。.：:！!…])+"
)
_SURE_WIDE: Final = re.compile(
    r"[：:]$|抱歉|对不起|對不起|回答|回复|回覆|上文|截断|截斷|申し訳|すみません|失礼|죄송|답변|응답"
)
#: Marks with which the rest of a sentence may begin.
_INNER: Final = frozenset(",.;:!?)]}”’»…")
