"""Documents that a model learns by heart: one each in several scripts, with code and with emoji."""

TEXTS = {
    "notice": (
        "The harbour office opens at seven. Whoever wants to moor must sign the list first, "
        "then wait for the green lamp. Boats longer than twelve metres use the northern quay, "
        "all others the southern one. The fee is due before noon; a receipt is given for every "
        "payment.\n\n"
        "In a storm nobody leaves the basin. The gates close when the second horn sounds, and "
        "they stay closed until the wind has been below eight for an hour."
    ),
    "script": (
        "```python\ndef shares(total: int, parts: list[int]) -> list[int]:\n"
        '    """Split `total` in proportion to `parts`."""\n'
        "    whole = sum(parts)\n    found = [total * part // whole for part in parts]\n"
        "    for at in range(total - sum(found)):\n        found[at] += 1\n"
        "    return found\n```\n"
    ),
    "greetings": (
        "Zürich grüßt: schöne Straßen, weiße Bögen.\n"
        "Привет из порта: корабли стоят у причала.\n"
        "港の朝は静かです。船は七時に出ます。\n"
        "مرحبا بكم في الميناء القديم.\n"
        "नमस्ते, नाव सात बजे जाती है।\n"
        "Flags and people: 🇨🇭 👩‍👩‍👧 🏳️‍🌈 ⛵️, e\u0301 is not é.\n"
    ),
}
PROMPT = "Recite the {name}."
