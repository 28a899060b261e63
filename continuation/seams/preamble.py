"""Recognizes preambles: words to the reader before a model continues.

Before the anchor, words in any language are not part of the answer; the judge decides that. Without
the anchor, an opening is dropped only if all three conditions are met:

- It consists only of words with which models speak of continuing an answer.
- It is set apart by a line break or a blank line.
- One of these is true: no sentence can stand where the text stopped (in a word, in JSON, between
  statements of code); the opening announces, in the first person or by a colon, that the answer
  continues; or the end of the text is repeated after it.

Everything else is kept. A letter may contain "Sorry for the interruption", and a story "Continued".
"""
# ruff: noqa: RUF001 - the letters that look like Latin ones are those of other languages

from __future__ import annotations

import re
import unicodedata
from typing import Final

from continuation.seams.text import Cut, Form, cells, fence_line, shape

#: The most characters of a preamble, and the most lines with words.
LONGEST: Final = 400
_MOST_LINES: Final = 3

_CODE_SIGNS: Final = re.compile(
    r"[={}<>|\\]|```|~~~|\w\(|;\s*$|\w\.\w+\W*$|\w_\w|^\s*[#@]|^ {4}|^\t|,\s*$", re.MULTILINE
)
_SENTENCE_START: Final = re.compile(r"\s*[^\w\s|<{}]{0,3}\s?(?![a-zß-öø-ÿа-яё])[^\W\d_]")
_NAME: Final = re.compile(r"\w+[_(.\[=:]")
_MARKED: Final = re.compile(r"[(\[*_]{1,2}[^\W\d_]")
_WRAPPED: Final = re.compile(r"\([^()]+\)|\[[^\[\]]+\]|\*{1,2}[^*]+\*{1,2}|__?[^_]+__?")
_QUOTED: Final = re.compile(r"(?<!\w)['\"‘“]|['\"’”](?!\w)")
#: A mark after another one, or before a letter: the second belongs to the text.
_TWO_MARKS: Final = re.compile(
    r"(?<!\.)\.\.(?!\.)|[:!?…。：！？][.:…。：]|[.。][:!?。：！？]|[.!?:…][^\W_]"
)
_PAIRS: Final = ("()", "[]")
#: Words of French, which puts a space before some marks.
_SPACED_MARKS: Final = re.compile(r"[éèàç]|\b(?:je|la suite|voici)\b", re.IGNORECASE)
_SENTENCE_GAP: Final = re.compile(r"(?<=[.!?…:。！？：])\s+|\n")


def may_begin_words(text: str, head: str) -> bool:
    """Whether `head`, after `text`, may begin with words to the reader, in any script.

    In a script with capital letters, a sentence begins with one, perhaps after a mark.
    """
    if not head.strip():
        return True
    if text.endswith("_") and _NAME.match(head):
        return False  # in the middle of a name
    if _MARKED.match(head) or _FIRST_WORD.match(head):
        return True
    return _SENTENCE_START.match(head) is not None and not unicodedata.category(
        head.lstrip()[0]
    ).startswith("M")


def may_be_words(opening: str) -> bool:
    """Whether an opening before the anchor may be words to the reader: a few lines, no code."""
    phrase = opening.strip()
    lines = [line for line in phrase.split("\n") if line.strip()]
    words = any(map(str.isalnum, phrase)) and not _CODE_SIGNS.search(phrase)
    return words and len(opening) <= LONGEST and len(lines) <= _MOST_LINES


def ends_of_openings(head: str) -> list[int]:
    """Return where a preamble at the start of `head` may end: after newlines and after a colon."""
    ends = [found.end() for found in _BLANK_LINE.finditer(head[: LONGEST + 20])]
    colon = re.match(r"[^\n:\uff1a]{2,160}[:\uff1a…][^\S\n]+(?=\S)", head)
    if colon:
        ends.append(colon.end())
    return sorted(set(ends))[:6]


def only_of_itself(opening: str) -> bool:
    """Whether an opening has only words with which models speak of continuing an answer.

    It must consist of complete sentences, and one of them must speak of continuing.
    """
    phrase = opening.strip()
    if not may_be_words(opening) or opening[0].isspace() or _QUOTED.search(phrase):
        return False
    wrapped = _WRAPPED.fullmatch(phrase) is not None
    if not wrapped and (phrase[-1] not in _ENDS or not phrase[0].isalpha()):
        return False
    if "  " in phrase or any(phrase.count(left) != phrase.count(right) for left, right in _PAIRS):
        return False
    if _TWO_MARKS.search(phrase):
        return False
    if re.search(r"\s[.:!?…]+\Z", phrase) and not _SPACED_MARKS.search(phrase):
        return False  # the mark belongs to the text
    for sentence in _SENTENCE_GAP.split(phrase):
        if sentence[:1].islower() or not any(map(str.isalpha, sentence)):
            return False
    if _is_wide(phrase):
        return _OWN_WIDE.fullmatch(phrase) is not None and _SURE_WIDE.search(phrase) is not None
    others = _OWN_WORD.findall(_SELF.sub(" ", phrase).lower())
    return _SELF.search(phrase) is not None and all(word in _OWN_WORDS for word in others)


def may_become_of_itself(head: str) -> bool:
    """Whether all words so far may begin an opening for which `only_of_itself` is true."""
    if not head[:1].isupper() and head[:1] not in "([*_" and head[:1] < "\u2e80":
        return False
    if _is_wide(head):
        return _OWN_WIDE.match(head) is not None
    others = _OWN_WORD.findall(_SELF.sub(" ", re.sub(r"\w+\Z", "", head)).lower())
    return all(word in _OWN_WORDS for word in others)


def cannot_stand(cut: Cut, opening: str, rest: str) -> bool:
    """Whether an opening, for which `only_of_itself` is true, cannot belong to the truncated text.

    That is so if no sentence can stand where the text stopped, and the opening has its own line.
    """
    if opening[0].isspace() or not opening.rstrip(" \t\r").endswith("\n") or not rest.strip():
        return False
    if fence_line(cut.line) is not None:
        return False  # the fence line needs the opening's line break
    code = cut.form is Form.CODE and _admits_no_sentence(cut, opening)
    if not code and _speaks_alike(cut, opening):
        return False
    if cut.line and not re.search(r"\n[ \t\r]*\n\Z", opening):
        # The line break and the words before it may belong to the text.
        return opening.rstrip()[-1] in ":：" and _announces(cut, opening, rest)
    return (
        _is_inside_word(cut, opening, rest)
        or _is_between_records(cut, rest)
        or _is_foreign(cut, opening)
        or _is_after_inner_mark(cut, opening, rest)
        or _rest_is_inner(cut, rest)
        or _admits_no_sentence(cut, opening)
        or _announces(cut, opening, rest)
    )


def _speaks_alike(cut: Cut, opening: str) -> bool:
    """Whether the text itself has such words, or is about truncated answers."""
    near = cut.near.lower()
    if any(stem[0].lower() in near for stem in _STRICT.finditer(opening)) or _is_about(cut):
        return True
    stems = _STRICT.finditer("" if cut.form is Form.CODE else near[-400:])
    return any(_is_wide(stem[0]) is _is_wide(opening) for stem in stems)


def own_line_break(cut: Cut, opening: str, rest: str) -> int:
    """Return how many characters at the end of an opening are white space of the text.

    A line break or a blank line sets the words apart. White space after it belongs to the text. If
    the text stopped right after a sentence, the break itself may belong to the text, as the end of
    a paragraph.
    """
    space = opening[len(opening.rstrip()) :]
    own = space[space.find("\n") :].lstrip(" \t\r")
    ended = cut.in_prose and cut.inside_line and cut.text[-1] in _STOPS
    if ended and not _rest_is_inner(cut, rest):
        return len(own)
    if space[:1] == " ":
        return len(own)  # the words are on the line of the text
    inner = continues_sentence(rest) or (cut.inside_word and rest[0].isalnum())
    if cut.inside_line and own == "\n" and not inner:
        return 1  # the words may be on the line of the text
    return len(_BLANK_LINE.sub("", own, count=1))


def continues_sentence(rest: str) -> bool:
    """Whether `rest` begins inside a sentence: with a small letter or an inner mark."""
    first = rest[1:2] if rest[:1] == " " else rest[:1]
    return first.islower() or first in _INNER


def _is_wide(words: str) -> bool:
    return _WIDE.search(words) is not None


def _is_about(cut: Cut) -> bool:
    """Whether the text itself speaks of answers that are truncated or complete."""
    return _ABOUT_ANSWERS.search(cut.near) is not None


def _announces(cut: Cut, opening: str, rest: str) -> bool:
    """Whether an opening announces that an answer continues, at a place where no other line can be.

    It announces that in the first person, or by a colon after a word for continuing. Where a line
    of the text could begin, the opening must also name the interruption. "Let me continue with the
    next part." and "Here is the rest of the code:" occur in guides and talks.
    """
    if cut.form is Form.CODE and _may_have_words(cut):
        return False
    phrase = opening.strip().strip("()[]*_ ")
    if _MORE_WORDS.search(phrase):
        return False  # the announcement ends at the colon
    announced = _ANNOUNCING.search(phrase) or (phrase[-1] in ":：" and _CONTINUING.search(phrase))
    if not announced:
        return False
    if not cut.line:
        return _INTERRUPTION.search(phrase) is not None
    stopped = cut.text.rstrip(" \t")[-1:]
    return continues_sentence(rest) or stopped.isalnum() or stopped in _JOINING


# Where no sentence can stand ----------------------------------------------------------------------


def _is_foreign(cut: Cut, opening: str) -> bool:
    """Whether an opening is in a script that the text does not have.

    Texts in other scripts contain names and titles in Latin letters. So a Latin opening must be a
    sentence, and stand right after a letter.
    """
    script = _script(opening)
    if script in {_script(char) for char in set(cut.near)}:
        return False
    words = opening.split()
    sentence = len(words) > 3 and words[-1][0].islower() and cut.text[-1].isalpha()
    return script != "LATIN" or sentence


def _script(text: str) -> str:
    """Return the script of the first letter of `text`, from its Unicode name; `""`: no letter."""
    for char in text:
        if char.isalpha():
            return unicodedata.name(char, "?").partition(" ")[0].partition("-")[0]
    return ""


def _is_between_records(cut: Cut, rest: str) -> bool:
    """Whether an opening would be inside or between two rows, or two of many similar lines."""
    rows = cut.form is Form.TABLE and not cut.line and rest[0] == "|"
    if rows and _RULER.match(rest.partition("\n")[2]) is None:
        return True
    line = cut.line + rest.partition("\n")[0]
    like = _SPACES.sub(" ", shape(line))
    marks = len(like.replace("w", "").replace(" ", ""))
    alike = [_SPACES.sub(" ", one) for one in cut.shapes].count(like)
    if alike >= _ALIKE and (marks >= _MARKS or not any(map(str.isalpha, line))):
        return True
    if alike >= _MANY_ALIKE and marks:
        return True
    if not line.split() or len(cut.line.split()) > 1:
        return False
    # The first words of many lines are similar, such as the times in a log.
    first = shape(line.split()[0])
    firsts = [one.split(" ")[0] for one in cut.shapes]
    return len(first.replace("w", "")) >= _MARKS and firsts.count(first) >= _ALIKE


def _is_inside_word(cut: Cut, opening: str, rest: str) -> bool:
    """Whether a capital letter would follow a small one or a digit, with no space between.

    A letter of a script without capitals, such as Chinese, counts as a capital letter.
    """
    if cut.text[-1:].islower() and opening[0] >= "\u2e80" and rest[0].islower():
        return not any(char >= "\u2e80" for char in cut.near[-400:])
    last, letters = cut.text[-1:], _OWN_WORD.findall(opening)
    if opening[0] in "[*" and last.isalpha() and rest[0].isalpha():
        return not cut.in_prose or rest[0].islower()
    if (opening[0] == "(" and not cut.in_prose) or (cut.in_prose and rest[0].isupper()):
        return False  # a function call, or a new paragraph
    if (
        not (last.islower() or last.isdigit() or last == "_")
        or not letters
        or letters[0][1:].isupper()
    ):
        return False
    return letters[0][0].isupper() and (len(letters) > 1 or opening.endswith("\n\n"))


def _is_after_inner_mark(cut: Cut, opening: str, rest: str) -> bool:
    """Whether a sentence would begin right after a mark, which never happens in the text."""
    fields = cut.form in (Form.CSV, Form.TABLE, Form.YAML)
    last = cut.text[-1:]
    begins = last in _CLOSERS or (last in _JOINERS and cut.in_prose and rest[0].islower())
    if not begins or not opening[0].isupper() or fields:
        return False
    return re.search(rf"{re.escape(last)}\w", cut.near[:-1]) is None


def _rest_is_inner(cut: Cut, rest: str) -> bool:
    """Whether `rest` begins with one space or an inner mark, but no line of the text does."""
    if not cut.inside_line or rest[0] not in _NO_LINE_STARTS or rest[:2].isspace():
        return False
    return re.search(rf"\n{re.escape(rest[0])}\S", cut.near) is None


def _admits_no_sentence(cut: Cut, opening: str) -> bool:
    """Whether no sentence can stand where a text of this kind stopped."""
    body = cut.near[cut.near.rfind("```") + 3 :] if cut.fence is not None else cut.near
    if cut.form is Form.HTML:
        return cut.near.rfind("<") > cut.near.rfind(">")
    if cut.form is Form.JSON:
        return cut.last_line[:1] not in ("}", "]") and not re.match(r"\{.*\}$", cut.last_line)
    if cut.form is Form.CSV:
        record = cut.line + opening.partition("\n")[0]
        whole = (cut.line or cut.last_line).count('"') % 2 == 0
        return whole and cells(record, cut.separator) != cut.columns > 0
    if cut.form is not Form.CODE or not (
        _is_program(cut) if cut.fence else not _SENTENCE_LINE.search(body)
    ):
        return False
    return not _NO_PROGRAM.search(body) and not _may_have_words(cut)


def _may_have_words(cut: Cut) -> bool:
    """Whether code stopped in or after a comment, or in a string."""
    body = cut.near[cut.near.rfind("```") + 3 :] if cut.fence is not None else cut.near
    if cut.text.count('"""') % 2 or cut.text.count("'''") % 2 or body.count("`") % 2:
        return True
    line = cut.line if cut.inside_line else cut.last_line
    if body.rfind("/*") > body.rfind("*/") or _COMMENT.search(line):
        return True
    return not cut.line.count('"') % 2 == cut.line.count("'") % 2 == 0


def _is_program(cut: Cut) -> bool:
    info = cut.fence.info.lower().split() if cut.fence is not None else []
    return bool(info) and info[0] in _PROGRAMS


#: What sets an opening apart: a line break, or a blank line.
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n|\n")
#: The least similar lines that make records, and the least marks that make lines similar.
_ALIKE: Final = 3
_MARKS: Final = 3
#: This many similar lines make records even with a single mark.
_MANY_ALIKE: Final = 8
_SPACES: Final = re.compile(r" +")
_RULER: Final = re.compile(r"[\s|:\-]*-[\s|:\-]*(?:\n|\Z)")
_PROGRAMS: Final = frozenset(
    """
    python py javascript js jsx typescript ts tsx java c cpp c++ csharp cs go rust rs ruby rb php
    swift kotlin scala lua css scss sql
    """.split()  # noqa: SIM905 - read as words
)
#: A line that is a sentence, in what may be code.
_SENTENCE_LINE: Final = re.compile(r"^[A-Z]\w*(?:,? [\w'’-]+){2,}[.!?:]$", re.MULTILINE)
#: Signs of texts that look like code but contain sentences.
_NO_PROGRAM: Final = re.compile(
    r"\\(?:begin|section|item|emph)\b|^@@ |^<\w|<<[-~]?['\"]?\w|^\w+: |=\s*$", re.MULTILINE
)
_COMMENT: Final = re.compile(
    r"#(?!(?:define|include|if|ifn?def|endif|else|elif|pragma|undef)\b)|//|--|^\s*[*;%]|/\*|\"\"\"|'''"
)


# An answer that was complete ----------------------------------------------------------------------


def only_says_complete(cut: Cut, text: str) -> bool:
    """Whether a complete attempt only states that an earlier message of the model was complete.

    Other statements of completeness are kept, because they may be the answer's last sentence ("No
    further changes to the code are needed."). All of them are kept in a text about such messages.
    """
    phrase = text.strip()
    if not 8 <= len(phrase) <= 240 or "\n\n" in phrase or _CODE_SIGNS.search(phrase):
        return False
    sentences = [one for one in _SENTENCE_GAP.split(phrase) if one]
    if len(sentences) > 2 or any(one[0].islower() for one in sentences):
        return False
    others = _SELF.sub(" ", _MY_MESSAGE.sub(" ", _COMPLETE_WORDS.sub(" ", phrase)))
    if _is_wide(phrase):
        known = _OWN_WIDE.fullmatch(others + " ") is not None
    else:
        known = all(word in _OWN_WORDS for word in _OWN_WORD.findall(others.lower()))
    if not known or text[0].isspace() or _is_about(cut):
        return False
    says = [bool(_MY_MESSAGE.search(one) and _COMPLETE.search(one)) for one in sentences]
    return any(says) and all(
        done or _COMPLETE.search(one) or _AGREEING.match(one)
        for done, one in zip(says, sentences, strict=True)
    )


# The words by which models speak of continuing ----------------------------------------------------

#: Characters that may end a preamble.
_ENDS: Final = ".!?…:。！？：।؟"
#: After these, a sentence has ended.
_STOPS: Final = _ENDS + "\"'”’»」』)"
#: After these, a space or a line break comes before a sentence.
_CLOSERS: Final = ",;)]}"
#: And after these, unless a small letter continues the word.
_JOINERS: Final = "-./~&+"
#: A line rarely begins with these.
_NO_LINE_STARTS: Final = " .,;:!?)]"
#: Words with which an opening may begin in small letters.
_FIRST_WORD: Final = re.compile(
    r"(?:sorry|ok|okay|sure|apologies|my (?:bad|apologies)|oops|continuing|continued|resuming"
    r"|here(?:'s|’s| is| goes)|alright|right,|certainly|picking up)\b"
)

_AGREEING: Final = re.compile(
    r"[\s*_(\[]*(?:sure|certainly|of course|okay|ok|understood|yes|no\b|noted|thank|sorry"
    r"|natürlich|klar|claro|bien sûr|certo|конечно|хорошо|好的|好|はい|네)",
    re.IGNORECASE,
)

#: That an answer is complete, or that there is nothing to add.
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

_COMPLETE_WORDS: Final = re.compile(rf"(?:{_COMPLETE.pattern})\w*", re.IGNORECASE)

#: How a model refers to its own earlier message.
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

#: Stems of words for continuing, and for having been interrupted, with the rest of the word.
_SELF: Final = re.compile(
    r"\b(?:contin[uú]|resum|left off|cut[- ]?off|cut short|(?:was|were|got) cut\b|truncat|interru"
    r"|apolog|sorry|rest\b|remain|pick(?:ing|ed)? (?:it |this |things |right )?(?:back )?up"
    r"|carry(?:ing)? on|go(?:ing)? on\b|back to it|next lines?\b|missing|ran out of (?:\w+)"
    r"|sig[ou]|segu|cortad|prossegu|fortsetz|weiter|entschuldig|unterbr|abgebroch|abbruch|abgeschnitt|fort\b|suite\b|repren"
    r"|désolé|excus|interromp|poursui|coup(?:é|ure)|disculp|lo siento|perd[oó]n|desculp|retom|scus"
    r"|riprend|verder|vervolg|gebleven|kontynu|przepras|fortsätt|fortsett|jatk|devam|folytat"
    r"|продолж|извин|прерв|остальн|оставш|продовж|вибач|συνεχ|συγγν|سأكمل|أكمل|أتابع|سأتابع|जारी)[^\W\d_]*",
    re.IGNORECASE,
)
#: Only words for continuing, not for the rest of something or for an apology.
_CONTINUING: Final = re.compile(
    r"\b(?:contin[uú]|resum|pick(?:ing|ed)? (?:it |this |things |right )?(?:back )?up|carrying on"
    r"|going on\b|sig[ou]|segu|prossegu|retom|fortsetz|weiter|suite\b|repren|poursui|riprend"
    r"|verder|vervolg|kontynu|fortsätt|fortsett|jatk|devam|folytat|продолж|продовж|συνεχ)"
    r"|أكمل|أتابع|जारी|续写|續寫|继续|繼續|接着|接著|接上|続き|続け|再開|계속|이어",
    re.IGNORECASE,
)
#: A model that announces, in the first person, that it continues.
_ANNOUNCING: Final = re.compile(
    r"\b(?:I|I['’]ll|I['’]m|let me|let['’]s|allow me)\b[^.!?]{0,30}\b"
    r"(?:contin|resum|pick|carry|go(?:ing)? on)"
    r"|\b(?:continuing|resuming|picking up|carrying on)\b[^.!?]{0,24}\b"
    r"(?:from|where|below|at the|right (?:after|where))\b"
    r"|\b(?:contin[uú]o|continuaré|sigo|retomo|prossigo|vou continuar|riprendo|proseguo)\b"
    r"|\bje (?:continue|reprends|poursuis)\b|\bich (?:setze|mache|fahre|schreibe)\b|\bsetze ich\b"
    r"|\bik (?:ga verder|vervolg)|\bпродолж(?:аю|у|им)\b|\bkontynuuję\b|\bdevam ediyorum\b"
    r"|\bhere(?:['’]s| is| are| comes)\b[^.!?]{0,40}\b(?:rest|remain\w*|missing)\b"
    r"|\bthe rest follows\b"
    r"|\bhier (?:ist|kommt|folgt)\b[^.!?]{0,24}\b(?:rest|fehlende)|\bvoici (?:la suite|le reste)\b"
    r"|\becco (?:il resto|il seguito)\b|\baqu[íi] (?:está|tienes|va) (?:el resto|lo que falta)"
    r"|\baqui está o resto|\bвот (?:остав|остат|продолж)|以下是(?:剩余|剩餘|其余|後續|后续)"
    r"|जारी रख|سأكمل|سأتابع|我(?:将|將|会|會|来|來)?(?:继续|繼續|接着|接著)|続けます|再開します"
    r"|계속하겠습니다|이어서 (?:작성|계속)",
    re.IGNORECASE,
)
#: The place where an answer stopped, that it stopped, or an apology for it.
_INTERRUPTION: Final = re.compile(
    r"left off|\bstopp?ed\b|\bcut\b|cut[- ]off|interru|truncat|apolog|\bsorry\b|patience"
    r"|previous (?:message|response|answer|output)|last (?:line|token|word)|(?:length|token) limit"
    r"|from (?:there|that point)|point of|abbruch|abgebroch|aufgehört|unterbr|genau dort"
    r"|entschuldig"
    r"|arrêté|interromp|coup(?:é|ure)|désolé|qued[éó]|cortad|\bcorte\b|lo dejé|lo siento|perd[oó]n"
    r"|disculp|parei|desculp|interrott|gebleven|przerw|przepras|останов|прерв|извин"
    r"|接着上|接著上|上文|截断|截斷|中断|中斷|抱歉|对不起|對不起|续写|續寫|途切|途中|申し訳|すみません"
    r"|끊|중단|죄송|توقف|عذر|वहीं|क्षमा",
    re.IGNORECASE,
)
_MORE_WORDS: Final = re.compile(r"[:：]\s*\S")
#: Marks inside a sentence, after which no new one begins.
_JOINING: Final = frozenset(",;-–—(‘“'\"/&")
#: A text about truncated or complete answers.
_ABOUT_ANSWERS: Final = re.compile(
    r"(?:{answer}).{0,48}(?:{state})|(?:{state}).{0,24}(?:{answer})".replace(
        "{answer}",
        r"answer|response|message|repl(?:y|ies)|output|antwort|ответ|réponse|respuesta|risposta"
        r"|resposta|回答|応答|回复|回覆|답변|응답",
    ).replace(
        "{state}",
        r"cut (?:off|short)|truncat|interrupt|complete|abbr|abgebr|unterbr|обор|прерв|interromp"
        r"|coup|interrump|cortad|截断|截斷|中断|中斷|途切|完成|完整|끊|잘린|중단|완료",
    ),
    re.IGNORECASE,
)
#: Stems that a text may well repeat if it already has one.
_STRICT: Final = re.compile(
    r"left off|cut[- ]?off|cut short|was cut|truncat|interru|apolog|sorry|resum"
    r"|continu(?:e\b|ing|ed)|abbruch|abgebroch|abgeschnitt|unterbr|entschuldig|weiter\b|fortsetzung|désolé|coup(?:é|ure)"
    r"|lo siento|disculp|desculp|scus[ai]|przerw|przepras|прерв|извин|продолж"
    r"|抱歉|对不起|對不起|继续|繼續|截断|截斷|中断|申し訳|すみません|失礼|続き|続け|途切|죄송|계속|이어서|중단",
    re.IGNORECASE,
)
_OWN_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
#: The words of sentences that only speak of continuing an answer.
_OWN_WORDS: Final = frozenset(
    """
    a ab about above abruptly absolutely add after again ahead ai al all alles alors alright am an
    and answer antwoord antwort apologies apology après aqui aquí archivo are arquivo arrêté arrêtée
    article as asked at aufgehört back bad be because been before begin beginning below bereits bien
    break but by can carry caused certainly certo che claro code com comes complete completing con
    confusion content continuar continuare continuation continúa cortada cortado corte cortó course
    cut część código d'accord da dalsza das datei de dejé del delay della dem den der des desde det
    di did die dieser directly do document documento dokument don't donc donde dort dove du där
    earlier ecco el em en end ended enough ero error es esattamente essay estaba está et exact
    exactamente exactement exactly exatamente fahre falta faltaba faltou fehlende fermato fichier
    file finish finished finishing finora foi folgen folgt follow following follows for fortsetzung
    from från full für ga geht gehts genau gern gerne get getting go goes going good got guide habe
    had happened happening happy has have having here here's here’s het hier hit här i i'll i'm i've
    ich ici ik il immediately in incomplete inconvenience interrotta interrotto interrupted
    interruption interruzione is ist it it's its it’s i’ll i’m i’ve jag jatkoa je keep keeping klar
    la last le left leid length les let let's let’s limit line lines list lo long los lost là ma
    manca mancava manquait manque me meine message mi mia mid mid-sentence miejsca mijn minha mir
    moment mon my natürlich next no not nothing now nun o od of off oh ok okay om on onde
    onderbreking onward oops ops or oto out output over où page paragraph parei part parte partir
    patience pause pela per pick picking place please point ponto por pour previous prior problem
    proceed promptly przerwania punto que quedado quedé quedó qui quick ran reached remainder
    remaining reply requested response resposta respuesta rest restliche restlichen resto result
    resumed resumption reszta right riprendo risposta room réponse sa same script se second section
    see segue seguindo seguir selbstverständlich sentence setze shall short sigo slutade so sofort
    space speak spot stands start starting stata stehengeblieben stelle still stop stopped story
    stream such suis suivant suivante supuesto sure svaret sûr table teil testo text texte texto
    thank thanks that that's that’s the then there there's thing this those to token tokens too tut
    tässä und understand understood unfinished until up vale van var very voici voilà von voor waar
    war was we we'll we're well were what where where's where-ever which whoops wie will with
    without wo word words would write writing wrote wurde y yes you you're you've your z za zum zur
    è été вот где за конечно места мой оставшаяся оставшийся остановилась остановился остаток ответ
    прервался прерывание с текста того файла часть التي النقطة توقفت حيث عذرا عندها من
    """.split()  # noqa: SIM905 - read as words
)
#: Scripts in which words are not always separated, or contain marks that are not letters.
_WIDE: Final = re.compile("[\u0900-\u097f\u2e80-\U0010ffff]")
#: The same words in those scripts: Chinese, Japanese, Korean, Hindi.
_OWN_WIDE: Final = re.compile(
    r"(?:好的|好|当然|當然|抱歉|对不起|對不起|不好意思|我|将|會|会|来|继续|繼續|接着|接著|接上|上文|上面|回答|回复|回覆"
    r"|被|中断|中斷|截断|截斷|了|刚才|剛才|以下|下面|是|续写|續寫|如下|剩余|剩餘|部分|内容|內容|从|從|处|處|地方|的|输出|輸出|这|這|里|裡"
    r"|申し訳ありません|申し訳ございません|すみません|失礼しました|はい|承知しました|続き|続け|から|ます|です|は|を|の|が|で|に|と"
    r"|して|て|しまい|出力|切れ|以下|とおり|通り|中断|途中|途切れ|再開|した|します|ました|ところ|箇所|先ほど|前回|回答|出力|残り|部分"
    r"|네|죄송합니다|계속해서|계속하겠습니다|계속|이어서|작성하겠습니다|작성합니다|드리겠습니다|나머지|부분|부분은|부분입니다|다음과|같습니다"
    r"|중단된|끊긴|곳부터|부터|답변|이전|응답|여기서|입니다"
    r"|मैं|वहीं|वहाँ|जहाँ|से|जारी|रखता|रखती|हूँ|हूं|क्षमा|करें|माफ़|कीजिए|शेष|भाग|अब|आगे|रुका|था|उत्तर|है"
    r"|[\s，,、।。.：:！!…])+"
)
_SURE_WIDE: Final = re.compile(
    r"继续|繼續|接着|接著|接上|续写|抱歉|对不起|對不起|剩余|剩餘|截断|截斷|続き|続け|再開|残り|申し訳|すみません|失礼|途中|途切"
    r"|계속|이어|죄송|나머지|중단|끊|जारी|क्षमा|शेष"
)
#: Marks with which the rest of a sentence may begin.
_INNER: Final = frozenset(",.;:!?)]}”’»…")
