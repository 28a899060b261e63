"""Texts on which a seam is easily wrong: equal lines, refrains, words about truncation, odd signs.

In all of them an exact continuation may look like a repetition, or like words to the reader.
`seam_manners.py` cuts them, with the texts of `seam_languages.py`, and continues them.
"""
# ruff: noqa: E501 - a text is easier to check where a line is a line; the signs are meant

from __future__ import annotations

import base64
import json
import random
import unicodedata


def _one(rng: random.Random, words: str) -> str:
    return rng.choice(words.split())


def made_texts(seed: int) -> dict[str, str]:
    """Return texts of records, equal lines and refrains, by name."""
    rng = random.Random(seed)
    things = "lamp boat oar rope bell gull pier sail mast tide stone crate ladder bucket whistle"
    kinds = "grey quiet broken silver narrow hollow warm early distant patient heavy"
    names = "Ada Bo Chiara Dmitri Esra Femi Gudrun Hana"

    def some(words: str) -> str:
        return _one(rng, words)

    lines = [
        json.dumps({"id": n, "name": some(names), "ok": True, "tags": [some(kinds)]})
        for n in range(14)
    ]
    refrain = "Lord of the harbour, hear our prayer."
    litany = "".join(
        f"For the {some(kinds)} {some(things)} and the {some(things)}, amen.\n{refrain}\n"
        for _ in range(9)
    )
    song = "".join(
        f"The {some(kinds)} {some(things)} is {some(kinds)} by the {some(things)},\n"
        "Oh bring me home before the morning light,\n"
        for _ in range(8)
    )
    ballad = "".join(
        f"{some(names)} sold a {some(things)}, a {some(things)} and a {some(things)}.\n\n"
        "And nobody on the island ever asked about it again.\n\n"
        for _ in range(7)
    )
    clauses = "".join(
        f"§ {n} {some(kinds).capitalize()} {some(things)}s. The {some(names)} company shall "
        f"deliver each {some(things)} within thirty days of the written order. Failing this, the "
        "buyer may withdraw from the contract without further notice.\n"
        for n in range(1, 8)
    )
    faq = "".join(
        f"**Can I bring my {some(kinds)} {some(things)}?**\n\nPlease ask the captain before you "
        "come aboard.\n\n"
        for _ in range(8)
    )
    rows = "| item | state | note |\n|---|---|---|\n" + "".join(
        f"| {some(things)} | ok | none |\n" for _ in range(16)
    )
    equal = "| a | b |\n|---|---|\n" + "| yes | no |\n" * 12
    log = "".join(
        f"2026-02-0{n % 9 + 1} 10:0{n % 10}:00 INFO worker: Connection lost. Retrying the request.\n"
        for n in range(12)
    )
    same_log = "worker: Connection lost. Retrying the request in five seconds.\n" * 9
    raw = bytes(rng.randrange(256) for _ in range(420))
    pem = base64.encodebytes(raw).decode()
    minified = ";".join(
        f"function {chr(97 + n)}(e,t){{return e.{some(things)}+t.{some(kinds)}*{n}}}"
        for n in range(14)
    )
    srt = "".join(
        f"{n}\n00:00:{n:02},000 --> 00:00:{n + 1:02},500\nI'm sorry, {some(names)}.\n\n"
        for n in range(1, 14)
    )
    chat = "".join(
        f"{some(names)}: {text}\n"
        for text in (
            "Did you get the file?",
            "Sorry, my answer was cut off.",
            "No problem, please continue.",
            "Sorry, I was away.",
            "Here is the rest:",
            "the second page is empty",
            "Sorry, my message was cut off again.",
            "Continuing where I left off:",
            "fine, thanks",
            "My apologies for the interruption.",
            "Let's go on then.",
        )
    )
    phrases = "no,kind,phrase\n" + "".join(
        f"{n},{kind},{phrase}\n"
        for n, (kind, phrase) in enumerate(
            [
                ("apology", "Sorry for the interruption."),
                ("resume", "Continuing where I left off:"),
                ("apology", "My previous message was cut off."),
                ("filler", "Let me continue."),
                ("done", "The response is complete."),
                ("resume", "Here is the rest:"),
                ("apology", "Apologies for the truncated output."),
                ("resume", "Picking up where I stopped."),
            ]
        )
    )
    return {
        "json lines": "\n".join(lines) + "\n",
        "litany": litany,
        "song": song,
        "ballad": ballad,
        "clauses": clauses,
        "faq": faq,
        "rows": rows,
        "equal rows": equal,
        "log lines": log,
        "equal log": same_log,
        "base64": pem,
        "minified": minified,
        "subtitles": srt,
        "chat": chat,
        "phrases": phrases,
    }


ABOUT_TRUNCATION: dict[str, str] = {
    "about truncation": (
        "# When an answer is truncated\n\nA language model stops at its output limit. The client "
        "then asks again, and the model writes one of a few openings:\n\nSorry, my answer was cut "
        "off.\n\nContinuing from where I left off:\n\nHere is the rest of the response:\n\nNone of "
        "these is part of the answer. A good client removes them.\n\n## How to test it\n\nAsk for a "
        "long list and stop reading early. Send this message:\n\nPlease continue.\n\nThe model "
        "often replies:\n\nMy apologies for the interruption. Let me continue.\n\nIf it says that "
        "the answer was already complete, believe it:\n\nThe response above is already complete. "
        "There is nothing more to add.\n\nNo further changes to the code are needed.\n"
    ),
    "email": (
        "Subject: Last night's outage\n\nDear members,\n\nWe apologize for the interruption.\n\n"
        "The service was stopped at nine and resumed at eleven. My previous message was cut off, "
        "so here is the full text.\n\nSorry for the confusion.\n\nThe remaining work will be "
        "finished on Friday. We will continue to watch the system and report to you.\n\nThank you "
        "for your patience.\n\nThat's all for now.\n\nMarta\n"
    ),
    "story": (
        "He opened the letter again. It said nothing new.\n\nSorry.\n\nOne word on a line of its "
        "own, in her handwriting. He turned the page and read:\n\nI will continue tomorrow.\n\n"
        "She had not. The rest of the page was white. He wrote below it:\n\nContinued.\n\nThen he "
        'left the house, walked to the ferry, and told the captain to go on. "Go on where?" asked '
        "the captain.\n\nWhere I left off.\n\nThe captain laughed and pulled the rope. Resuming the "
        "old route took them an hour.\n\nThe end of the message was missing.\n"
    ),
    "code comments": (
        'def resume(state):\n    """\n    Continue the interrupted message.\n\n    The rest of the '
        'output follows.\n    """\n    # Sorry, the answer was cut off.\n    # Continue where we '
        "left off:\n    text = state.text\n    log('Continuing from the last token.')\n    return "
        "text\n\n\nMESSAGE = '''\nApologies for the interruption.\n\nHere is the rest:\n'''\n\n\n"
        'def done():\n    """Say that the response is complete.\n\n    Nothing more to add.\n    '
        '"""\n    print(\'My previous answer was truncated.\')\n'
    ),
    "messages yaml": (
        "cut_off: |\n  Sorry, my answer was cut off.\n\n  Please continue.\nresume: >\n  Continuing "
        "from where I left off:\nContinue:\n  - Here is the rest.\n  - Let me continue.\nText: "
        "Apologies for the interruption.\nRest:\n  The remaining output\nDone: The response is "
        "complete.\n"
    ),
    "html page": (
        "<html>\n<body>\n<h1>Sorry</h1>\n<p>\nSorry for the interruption.\n</p>\n<p>\nPlease "
        "continue where you left off.\n</p>\n<p>My previous message was cut off.</p>\n<button>\n"
        "Continue\n</button>\n<footer>\nThat is all.\n</footer>\n</body>\n</html>\n"
    ),
    "latex paper": (
        "\\section{Resumption}\nWe continue the interrupted text.\n\nSorry for the notation.\n\n"
        "Let $r$ be the rest of the output. \\emph{The message was cut off.} We resume at the last "
        "token:\n\\begin{verbatim}\nContinuing where I left off:\n\\end{verbatim}\nThe response is "
        "complete.\n\nNothing more is left to prove.\n\\end{document}\n"
    ),
    "transcript": (
        "```text\n> open door\nThe door is stuck.\n\n> continue\nContinuing.\n\nYou are in a hall. "
        "The rest of the house is dark.\n\n> go on\nSorry, you cannot go on.\n\n> resume\nResuming "
        "the game where you left off.\n\nThe lamp went out.\n\n> say sorry\nSorry.\n\nNobody "
        "answers.\n```\n\nThat is the complete output.\n"
    ),
    "zh about": (
        "# 截断的回答\n\n模型达到长度限制时，回答会被截断。用户让它继续，它常常先写：\n\n抱歉，我的回答被截断了。\n\n"
        "继续上文：\n\n这些话不是回答的一部分。他只说了抱歉。\n\n然后继续写剩余的内容。接着他写道：\n\n以下是剩余部分：\n\n"
        "第二段开始了。老师说，继续。\n\n大家都不说话。以上回答已经完整，没有更多内容。\n\n她回答说对不起。接上文，故事到此结束。\n"
    ),
    "ja about": (
        "# 途切れた回答\n\n長さの上限に達すると、回答は途中で途切れる。続きを頼むと、モデルはこう書く。\n\n申し訳ありません。続きは以下のとおりです：\n\n"
        "これは回答の一部ではない。彼はただ続けます、と言った。\n\n残りの部分は明日書くことにする。彼女は書いた。\n\n失礼しました。\n\n"
        "そして手紙は終わった。以上です。上記の回答は完成しています。\n"
    ),
    "ko about": (
        "# 잘린 답변\n\n길이 제한에 이르면 답변이 끊긴다. 계속하라고 하면 모델은 이렇게 쓴다.\n\n죄송합니다. 계속해서 작성하겠습니다:\n\n"
        "이 말은 답변이 아니다. 그는 나머지 부분을 내일 쓰겠다고 했다.\n\n이어서 작성합니다.\n\n그녀는 고개를 끄덕였다. 위의 답변은 완료되었습니다.\n"
    ),
    "de about": (
        "# Wenn die Antwort abbricht\n\nDas Modell schreibt dann meist:\n\nEntschuldigung, meine "
        "Antwort wurde unterbrochen.\n\nHier geht es weiter:\n\nDas gehört nicht zur Antwort. Er "
        "sagte nur\n\nWeiter.\n\nDann schwieg er. Fortsetzung folgt.\n\nDer Rest des Textes steht "
        "auf der nächsten Seite. Die Antwort ist vollständig.\n"
    ),
    "ru about": (
        "# Оборванный ответ\n\nМодель обычно пишет так:\n\nИзвините, мой ответ прервался.\n\n"
        "Продолжаю с того места, где остановился:\n\nЭто не часть ответа. Он сказал только\n\n"
        "Продолжение следует.\n\nИ замолчал. Остальное допишу завтра. Ответ завершён.\n"
    ),
}

ODD_SIGNS: dict[str, str] = {
    "brand names": (
        "Prices moved in opposite directions this spring. Mac sales rose while MacBook prices "
        "fell.\n\niPad orders were flat. JavaScript is the language they all run. It changes "
        "often.\n\neBay sellers noticed first. The iPhone Continue button was renamed. YouTube "
        "Continue watching stayed as it was.\n\nmacOS users did not care. A new LaTeX package and "
        "a GitHub Resume badge came out. McDonald Rest stop opened.\n\niOS followed a week later.\n"
    ),
    "titles in zh": (
        "他最喜欢的书是The Great Gatsby.\n\n他每年读一遍。我们使用的框架是React Native for the web.\n\n它很快。店名叫Rest of the "
        "Night.\n\n老板姓王，唱片名为Sorry to Go On:\n\n第一首歌很慢。他常说Let it be!\n\n然后笑一笑。歌词里写着Continue:\n\n大家都会唱这首歌。\n"
    ),
    "words in ru": (
        "Группа называется The Rest of Us.\n\nони играют по пятницам. На экране горит Continue "
        "please:\n\nи больше ничего. Он сказал Sorry my friend.\n\nа потом ушёл. Команда git "
        "rebase Continue now.\n\nеё никто не понял до конца.\n"
    ),
    "curly quotes": (
        "“You’re late,” she said – and “late” wasn’t a word she used lightly. The café’s clock, a "
        "gift from ‘the Colonel’, showed a quarter past nine…\n\n“It’s the tram,” he answered; "
        "“it stopped at the bridge — twice.” She didn’t believe him—nobody did—but the naïve "
        "smile, the déjà‑vu of it, made her laugh. “Sit down,” she said. “We’ve kept your soup.”\n"
    ),
    "french spaces": (
        "Le prix\u00a0: 1\u202f250\u00a0€ par mois. «\u00a0C’est trop cher\u00a0!\u00a0» dit-elle\u202f; il "
        "répondit\u00a0: «\u00a0Peut-être.\u00a0» Puis le silence, les 12\u00a0% de remise, et la signature, "
        "page\u00a047.\n\nDeux jours plus tard\u00a0: l’appartement était vide, les rideaux bleus tirés.\n"
    ),
    "full width": (
        "価格は１２，３００円（税込）です。お問い合わせ：０３－１２３４－５６７８。「在庫なし」の場合は、"
        "次回の入荷（３月１５日）をお待ちください。\n\n品番：ＡＢ－４５６　色：青　サイズ：Ｌ。返品は７日以内、"
        "送料はお客様のご負担となります。ﾎﾟｲﾝﾄは翌月に加算されます。\n"
    ),
    "emoji": (
        "Team: 👩‍👩‍👧‍👦 picnic at 🏖️, bring 🧺 and 👍🏽 mood. Flags: 🇩🇪 🇫🇷 🏳️‍🌈. The 👨🏿‍🚀 joined late, "
        "e\u0301clair in hand, nai\u0308ve as ever. Then 🎉🎉🎉 and a song: do\u0308do\u0308 re\u0301. Zalgo: "
        "h\u0335e\u0336l\u0337l\u0338o, नमस्ते, สวัสดีค่ะ, Việt Nam. The 🧑‍💻 wrote it all down in a "
        "blue notebook. 🌈 Good night to everyone who came by boat.\n"
    ),
    "decomposed": unicodedata.normalize(
        "NFD",
        "Người bán hàng ở góc phố đếm từng đồng xu trước khi đóng cửa. Chiếc đèn dầu vẫn cháy. "
        "Mẹ gọi điện, hỏi bao giờ con về.\n\nTiệm bánh của ông Müller ở Zürich mở cửa sớm; mùi "
        "quế và bơ bay khắp ngõ. 한국의 겨울은 길고 조용하다. 눈이 내리면 모두 집에 머문다.\n",
    ),
    "sql": (
        "SELECT o.id, c.name, SUM(l.price * l.amount) AS total\nFROM orders o\nJOIN customers c ON "
        "c.id = o.customer_id\nJOIN lines l ON l.order_id = o.id\nWHERE o.created >= '2026-01-01'\n"
        "  AND c.country IN ('DE', 'FR')\nGROUP BY o.id, c.name\nHAVING SUM(l.price * l.amount) > "
        "100\nORDER BY total DESC\nLIMIT 50;\n\n-- Continue with the rest of the orders.\nDELETE "
        "FROM orders WHERE total IS NULL;\n"
    ),
    "code in prose": (
        "Put this into `app.py`:\n\n```python\nfrom flask import Flask\n\napp = Flask(__name__)\n\n\n"
        '@app.get("/")\ndef index():\n    return "hello"\n```\n\nAnd this into the template:\n\n'
        "```html\n<p>{{ name }}</p>\n<p>Sorry.</p>\n```\n\n## Run it\n\nThe server starts on port "
        "5000.\n\n```bash\nflask run\n```\n\n### Notes\n\n- The rest is up to you.\n- Continue with "
        "the next chapter.\n\nNo further changes to the code are needed.\n"
    ),
    "fence in code": (
        '```python\nDOC = """\nUse it so:\n\n```js\nrun()\n```\n"""\n\ndef f(x):\n    return x + '
        "1\n```\n\n```\nplain output\nsecond line\n```\n\n~~~text\n```\nnested\n```\n~~~\n\nThe "
        "blocks above are all there is. Nothing else has to be changed.\n"
    ),
    "go code": (
        'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc main() {\n\tif len(os.Args) < 2 {\n'
        '\t\tfmt.Println("usage: tool NAME")\n\t\tos.Exit(1)\n\t}\n\tname := os.Args[1]\n\tfor i '
        ':= 0; i < 3; i++ {\n\t\tfmt.Printf("%d: %s\\n", i, name)\n\t}\n\tif err := save(name); '
        "err != nil {\n\t\tfmt.Println(err)\n\t\tos.Exit(1)\n\t}\n}\n\nfunc save(name string) error "
        '{\n\treturn os.WriteFile("name.txt", []byte(name), 0o600)\n}\n'
    ),
}

HELD_OUT = frozenset({
    "ballad", "clauses", "log lines", "subtitles", "email", "messages yaml", "transcript",
    "ko about", "ru about", "words in ru", "emoji", "sql", "fence in code",
})  # fmt: skip
"""Texts that are not looked at while the rules are changed."""


def hard_texts(seed: int) -> dict[str, str]:
    """Return all texts of this file, by name."""
    return {**made_texts(seed), **ABOUT_TRUNCATION, **ODD_SIGNS}
