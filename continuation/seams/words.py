"""Stems by which models speak of going on: one piece of evidence among others, never proof."""
# ruff: noqa: RUF001 - the letters that look like Latin ones are those of other languages

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "AGREEING",
    "ANSWER",
    "COLONS",
    "COMPLETE",
    "ENDS",
    "OF_ITSELF",
    "OPENERS",
    "RESUMING",
    "SENTENCE_END",
    "STOPS",
]

#: What ends a sentence, what announces something, what may end words to the reader.
STOPS: Final = ".!?。！？"
COLONS: Final = ":：…"
ENDS: Final = ".!?…:。！？：।؟"
#: After these a capital letter is nothing unusual.
OPENERS: Final = "([{\"'`*_#>/“‘«-"

#: The end of a sentence before the next one begins.
SENTENCE_END: Final = re.compile(r"(?:[.!?:] |[。！？]|[.!?][\"”]? )$")

#: Going on, having been cut off, apologising.
RESUMING: Final = re.compile(
    r"\b(?:continu|contin[uú]|resum|left off|cut off|cut short|truncat|interrupt|apolog|sorry"
    r"|pick\w* (?:it |this |things )?(?:back )?up|rest of|the rest\b|remaind|remaining"
    r"|carry\w* on|back to (?:it|where)|next (?:part|lines?|section|chunk)"
    r"|previous (?:response|message|answer|output)"
    r"|fortsetz|fortfahr|fahre\b|weiter|entschuldig|unterbr|abgebroch|abgeschnitt|restlich"
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
AGREEING: Final = re.compile(
    r"[\s*_(\[]*(?:sure|certainly|of course|okay|ok|alright|all right|understood|got it"
    r"|absolutely|right|yes|yeah|no problem|no worries|thank|here(?:'s|’s| is| are)|noted"
    r"|let me|let's|i'll|i’ll|i will|great|gladly|happy to|my "
    r"|claro|por supuesto|aqu[ií]|vale|bien sûr|d'accord|voici|voilà|natürlich|gern|hier|klar"
    r"|certo|ecco|certamente|конечно|хорошо|вот|понял|tabii|tamam|işte|بالطبع|حسن|إليك|बिल्कुल"
    r"|好的|好|当然|當然|明白|了解|收到|以下|はい|承知|わかり|分かり|もちろん|では|네|알겠|물론|다음)",
    re.IGNORECASE,
)

#: Speaking of the answer itself: hardly ever part of one.
OF_ITSELF: Final = re.compile(
    r"left off|i stopped|was cut|got cut|cut off|cut short|truncated"
    r"|previous (?:response|message|answer|output)"
    r"|^\W*(?:continu(?:ing|ation|ed)|resuming|picking up|sorry|apologies|i apologi[sz]e"
    r"|my apologies|lo siento|perd[oó]n|disculp|désolé|desculp|scus[ai]|mi dispiace|entschuldig"
    r"|извин|прости)"
    r"|^\W*(?:fortsetzung|suite\b|continuaci|continua[cç]|продолж|继续|繼續|接着|接上|続き|계속|이어)"
    r"|申し訳|抱歉|对不起|죄송",
    re.IGNORECASE,
)

#: Being complete, having nothing to add.
COMPLETE: Final = re.compile(
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

#: The answer, in a sentence that says it is complete.
ANSWER: Final = re.compile(
    r"response|answer|message|output|reply|text|code|file|document|content|explanation|list"
    r"|article|everything|to (?:add|continue|say|write)"
    r"|antwort|nachricht|hinzu|réponse|respuesta|mensaje|resposta|risposta|ajouter|agregar"
    r"|añadir|aggiungere|ответ|сообщени|добав"
    r"|回答|回复|回覆|内容|內容|答案|回應|出力|応答|답변|응답|내용",
    re.IGNORECASE,
)
