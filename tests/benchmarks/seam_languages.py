"""Texts of 25 languages, and what models write before they continue one, in the same language.

Each text is cut at many places. Each place is continued in each manner. Three things are counted:
joins that are exact, characters kept that are not part of the text, and characters of the text
that are lost. The last must be 0.

    python tests/benchmarks/seam_languages.py [--step 3] [--failures 10] [--held-out]
"""
# ruff: noqa: E501 - a text is easier to check where a line is a line

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from continuation.seams.seam import Seam, Verdict
from continuation.seams.text import choose_anchor


@dataclass(frozen=True, slots=True)
class Language:
    """A text, and words to the reader: on the same line, and with a line of their own."""

    text: str
    same_line: tuple[str, ...]
    own_line: tuple[str, ...]


LANGUAGES: dict[str, Language] = {
    "en": Language(
        "The ferry leaves the harbour at six in the morning, long before the fish market opens. "
        "Most passengers are fishermen's wives who sell their catch in the city across the bay. "
        "They carry wooden crates filled with ice, and they talk loudly so that the engine does "
        "not drown their voices. Nobody remembers who built the first pier, but everyone agrees "
        "that it was made of oak.\n\nIn winter the crossing takes twice as long. The captain "
        "slows down near the lighthouse, where the current is strongest, and waits for a signal "
        "from the shore. No further changes to the timetable are needed, the company writes every "
        "year, and every year the timetable changes anyway. That is all the sailors ever say about it.",
        (
            "Sorry, my answer was cut off. ",
            "Picking up there: ",
            "Where were we? Right. ",
            "My bad! ",
        ),
        ("Here is the remainder:\n\n", "Sorry about that, I ran out of room.\n\n"),
    ),
    "de": Language(
        "Der Zug nach Norden fährt jeden Abend um zwanzig Uhr vom Gleis neben der alten Post ab. "
        "Im Speisewagen sitzen Studenten, Handwerker und manchmal ein Chor, der auf dem Weg zu "
        "einem Auftritt ist. Die Schaffnerin kennt die meisten Fahrgäste beim Namen und fragt nach "
        "ihren Kindern. Weiter vorn schläft ein Mann, dessen Hut über die Augen gerutscht ist.\n\n"
        "Hinter der Grenze wird die Landschaft flacher, und die Fenster beschlagen von innen. Wer "
        "aussteigen will, muss den Knopf zweimal drücken, weil der erste Druck selten ankommt. Der "
        "Rest der Strecke gehört den Möwen, die dem Zug bis zum Hafen folgen.",
        ("Entschuldige, da brach es ab. ", "Also gut, los: ", "Hoppla. "),
        ("Hier der fehlende Teil:\n\n", "Verzeihung, der Platz war zu Ende.\n\n"),
    ),
    "fr": Language(
        "Le marché s'installe sur la place dès que la nuit se retire, et les premières lampes "
        "éclairent des pyramides d'oranges. Une vieille femme vend du miel dans des pots sans "
        "étiquette ; elle dit que le goût suffit. Les enfants courent entre les étals, volent une "
        "figue et rient. À midi, la pluie disperse les clients, mais personne ne range rien.\n\n"
        "La suite de la journée appartient aux musiciens. Ils jouent sous l'auvent de la mairie, "
        "où l'écho leur donne l'air d'être vingt. Le reste du village écoute depuis les fenêtres, "
        "un verre à la main, et attend que le ciel s'ouvre de nouveau.",
        ("Pardon, coupé en route. ", "Bon, j'y vais : ", "Oups ! "),
        ("Voici ce qui manquait :\n\n", "Désolé, plus de place tout à l'heure.\n\n"),
    ),
    "es": Language(
        "El faro se encendió por primera vez en el invierno de la gran sequía, cuando los barcos "
        "llegaban cargados de agua. Desde entonces una familia cuida la lámpara y anota en un "
        "cuaderno cada tormenta. El abuelo escribía con lápiz, la nieta prefiere una máquina que "
        "apenas funciona. Los turistas suben los doscientos escalones y bajan en silencio.\n\n"
        "Por la tarde sopla un viento que huele a romero. Las gallinas se esconden debajo de la "
        "mesa y el perro continúa ladrando al mar hasta que oscurece. Lo siento, dice la nieta a "
        "quien pregunta, pero el cuaderno no se presta ni se vende.",
        ("Perdona, se cortó. ", "Vamos con lo que faltaba: ", "¡Uy! "),
        ("Aquí va lo que quedó fuera:\n\n", "Disculpa, no cabía más.\n\n"),
    ),
    "pt": Language(
        "A oficina do sapateiro fica numa rua tão estreita que o sol entra apenas ao meio-dia. Ele "
        "conserta botas de montanha, sandálias de festa e, uma vez por ano, os sapatos vermelhos "
        "do padre. Na parede há um relógio parado e uma fotografia do mar. Quem espera senta-se "
        "num banco feito de caixas e conversa sobre futebol.\n\nQuando fecha a porta, o sapateiro "
        "leva o cão até a ponte. Ali os dois olham o rio, que desce barrento depois das chuvas, e "
        "contam os barcos. O resto do mundo, diz ele, pode esperar até segunda-feira.",
        ("Opa, ficou pela metade. ", "Então, vamos lá: ", "Foi mal! "),
        ("Segue o que faltou:\n\n", "Desculpe, acabou o espaço.\n\n"),
    ),
    "it": Language(
        "Il forno apre alle quattro, quando la piazza è ancora buia e i gatti dormono sui gradini "
        "del municipio. Il primo cliente è sempre il medico, che compra due panini e non aspetta "
        "mai il resto. Poi arrivano i muratori con le scarpe bianche di calce. La fornaia segna i "
        "debiti su un quaderno, ma non li riscuote quasi mai.\n\nA settembre la fila arriva fino "
        "alla fontana, perché comincia la vendemmia e tutti vogliono il pane con l'uva. Scusa, "
        "dice la fornaia a chi arriva tardi, e regala un biscotto. La ricetta continua a passare "
        "di madre in figlia senza essere mai scritta.",
        ("Ops, mi ero fermato. ", "Dunque, riprendo da lì: ", "Ecco. "),
        ("Ecco la parte mancante:\n\n", "Chiedo scusa, lo spazio era finito.\n\n"),
    ),
    "nl": Language(
        "De molen aan het kanaal draait alleen nog op zaterdag, als er genoeg bezoekers zijn om de "
        "kosten te betalen. De molenaar is een gepensioneerde natuurkundige die graag uitlegt "
        "waarom de wieken schuin staan. Kinderen mogen meel scheppen en krijgen een stempel op hun "
        "hand. Binnen ruikt het naar hout, olie en regen.\n\nIn de herfst komt de wind uit het "
        "westen en kraakt de hele toren. Dan blijft de molenaar slapen op een veldbed naast de "
        "stenen, want het verhaal gaat verder, zegt hij, ook wanneer niemand luistert.",
        ("Oeps, dat brak af. ", "Goed, daar gaan we: ", "Zo. "),
        ("Dit ontbrak nog:\n\n", "Sorry, de ruimte was op.\n\n"),
    ),
    "sv": Language(
        "Biblioteket på ön har bara ett rum, men fönstret vetter mot havet och ljuset räcker till "
        "sent på kvällen. Bibliotekarien kör ut böcker med cykel när båten inte går. På hyllan "
        "längst bort står loggböcker från segelfartyg som ingen har läst på hundra år. Barnen får "
        "låna tre böcker åt gången och en snäcka.\n\nVarje vår målas dörren i en ny färg som "
        "byborna röstar om. I år blev den gul, trots att fiskarna ville ha grönt. Fortsättning "
        "följer, skriver bibliotekarien på en lapp, och cyklar hem i motvinden.",
        ("Hoppsan, det tog slut. ", "Jaha, då så: ", "Förlåt! "),
        ("Det här saknades:\n\n", "Ledsen, utrymmet var slut.\n\n"),
    ),
    "pl": Language(
        "W kamienicy przy rynku mieszka zegarmistrz, który nigdy nie nosi zegarka. Twierdzi, że "
        "słyszy, która jest godzina, po krokach ludzi na schodach. Naprawia budziki, metronomy i "
        "jedną starą katarynkę z pękniętym miechem. Klienci zostawiają mu klucze, bo warsztat "
        "bywa zamknięty, kiedy on karmi gołębie.\n\nZimą szyby zamarzają od środka, a tykanie "
        "wypełnia cały pokój. Reszta kamienicy śpi, tylko na poddaszu ktoś gra na skrzypcach ten "
        "sam fragment. Dalszy ciąg zna każdy sąsiad, ale nikt go nie nuci na głos.",
        ("Ojej, urwało się. ", "No to jedziemy: ", "Przepraszam! "),
        ("Oto brakująca część:\n\n", "Wybacz, skończyło się miejsce.\n\n"),
    ),
    "cs": Language(
        "Na nádraží v údolí zastavuje vlak jen na požádání, a tak každý mává tak dlouho, dokud "
        "strojvedoucí nezahouká. Výpravčí pěstuje v truhlících rajčata a rozdává je cestujícím. "
        "V čekárně visí mapa tratí, které už dávno zarostly trávou. Přesto se u ní lidé zastavují "
        "a prstem hledají svou vesnici.\n\nKdyž napadne sníh, přijede posyp až k polednímu a děti "
        "zatím sáňkují z náspu. Pokračování cesty závisí na tom, kdo má lopatu. Zbytek se vyřeší "
        "u kamen, kde se vaří čaj s rumem.",
        ("Jejda, useklo se to. ", "Tak tedy dál: ", "Omlouvám se! "),
        ("Tady je, co chybělo:\n\n", "Promiňte, došlo místo.\n\n"),
    ),
    "ru": Language(
        "Старый трамвай ходит через реку только летом, когда туристы готовы платить за медленную "
        "дорогу. Водитель носит фуражку своего деда и звонит в колокольчик у каждого моста. На "
        "заднем сиденье лежат вязаные подушки, которые приносит соседка. Иногда в вагон заходит "
        "кот и едет до рынка бесплатно.\n\nОсенью рельсы засыпают листья, и скорость падает ещё "
        "больше. Пассажиры читают вслух, продолжение книги ждут до следующей поездки. Остальное "
        "время трамвай стоит в депо и пахнет краской, деревом и чуть-чуть дождём.",
        ("Ой, оборвалось на полуслове. ", "Ну что ж, дальше так: ", "Прошу прощения! "),
        ("Вот недостающая часть:\n\n", "Извините, место кончилось.\n\n"),
    ),
    "uk": Language(
        "Пасіка стоїть на схилі, звідки видно три села і два монастирі. Пасічник говорить з "
        "бджолами тихо, щоб вони не подумали, ніби він свариться. Мед він розливає в глиняні "
        "горщики, бо скло, мовляв, краде запах. Онуки приїжджають у липні й сплять на сіні.\n\n"
        "Увечері всі сидять під горіхом і слухають, як гуде вулик. Решта розмов може зачекати до "
        "ранку. Коли настає гроза, пасічник накриває вулики рядном і залишається поруч, поки не "
        "стихне грім над лісом.",
        ("Ой, урвалося. ", "Отже, йдемо далі: ", "Перепрошую! "),
        ("Ось те, чого бракувало:\n\n", "Вибачте, забракло місця.\n\n"),
    ),
    "el": Language(
        "Το καφενείο στην άκρη του λιμανιού ανοίγει πριν από την αυγή για τους ψαράδες που "
        "γυρίζουν. Ο ιδιοκτήτης ψήνει τον καφέ σε άμμο και θυμάται πώς τον πίνει ο καθένας. Στον "
        "τοίχο κρέμονται δίχτυα, φωτογραφίες και ένα ημερολόγιο που δεν άλλαξε ποτέ μήνα. Οι "
        "γάτες περιμένουν κάτω από τα τραπέζια.\n\nΤον χειμώνα το κύμα φτάνει ως το κατώφλι και "
        "όλοι σηκώνουν τις καρέκλες. Η συνέχεια της κουβέντας μεταφέρεται στην κουζίνα, κοντά στη "
        "σόμπα. Τα υπόλοιπα τα λένε την άνοιξη, όταν έρχονται οι ξένοι.",
        ("Ωχ, κόπηκε. ", "Λοιπόν, πάμε: ", "Με συγχωρείτε! "),
        ("Ορίστε ό,τι έλειπε:\n\n", "Συγγνώμη, τελείωσε ο χώρος.\n\n"),
    ),
    "tr": Language(
        "Kasabadaki matbaa yalnızca perşembe günleri çalışır, çünkü ustanın dizleri daha fazlasına "
        "izin vermez. Düğün davetiyeleri, takvimler ve bazen bir şairin ince kitabı burada "
        "basılır. Mürekkep kokusu sokağın köşesine kadar yayılır. Çırak harfleri tersinden okumayı "
        "okuldan önce öğrenmiştir.\n\nKışın soba yanmadan kâğıt kıvrılır ve makine sıkışır. Usta "
        "o zaman çay demler, işe öğleden sonra devam eder. Kalan sayfaları kapının önünde "
        "kuruturlar, rüzgâr çıkarsa hep birlikte peşinden koşarlar.",
        ("Eyvah, yarım kalmış. ", "Peki, başlıyorum: ", "Pardon! "),
        ("Eksik olan kısım şöyle:\n\n", "Kusura bakmayın, yer bitmişti.\n\n"),
    ),
    "fi": Language(
        "Järven rannalla on sauna, jonka avain roikkuu naulassa kaikkien nähtävillä. Jokainen tuo "
        "mukanaan puita ja jättää seuraavalle kiulullisen vettä. Vanhin kävijä muistaa ajan, "
        "jolloin katto oli tuohta. Hän istuu ylimmällä lauteella eikä sano mitään ennen kolmatta "
        "löylyä.\n\nTalvella avanto pidetään auki pumpulla, joka hurisee yötä päivää. Jatkuva ääni "
        "kuuluu vastarannalle asti, mutta siihen tottuu. Loput illasta kuluu laiturilla, missä "
        "katsotaan tähtiä ja paistetaan makkaraa.",
        ("Hups, jäi kesken. ", "No niin, mennään: ", "Anteeksi! "),
        ("Tässä puuttuva osa:\n\n", "Pahoittelut, tila loppui.\n\n"),
    ),
    "hu": Language(
        "A cukrászda kirakatában mindig ugyanaz a háromemeletes torta áll, amelyet már senki sem "
        "mer megenni. Bent viszont friss krémest mérnek, és a kávé mellé pohár vizet adnak. A "
        "pincér fejből tudja a törzsvendégek születésnapját. Délután a nyugdíjasok sakkoznak a "
        "hátsó asztalnál.\n\nHa beköszönt a tél, a kályha köré húzzák a székeket. A folytatás "
        "mindig ugyanaz: valaki elénekel egy régi dalt, a többiek dúdolják. A maradék süteményt "
        "zárás után a hajléktalanszállóra viszik.",
        ("Hoppá, félbeszakadt. ", "Na, akkor onnan: ", "Bocsánat! "),
        ("Íme, ami hiányzott:\n\n", "Elnézést, elfogyott a hely.\n\n"),
    ),
    "vi": Language(
        "Quán phở đầu ngõ mở cửa lúc năm giờ sáng, khi sương còn phủ kín mặt hồ. Bà chủ ninh xương "
        "suốt đêm và nếm nước dùng bằng một chiếc thìa gỗ cũ. Khách quen ngồi trên ghế nhựa thấp, "
        "vừa ăn vừa nghe đài. Mùi quế và hồi bay sang tận bên kia đường.\n\nMùa mưa, nước ngập "
        "đến mắt cá chân nhưng quán vẫn đông. Mọi người tiếp tục câu chuyện hôm trước như chưa "
        "từng dừng lại. Phần còn lại của buổi sáng, bà ngồi nhặt rau và đếm tiền lẻ.",
        ("Ôi, bị ngắt mất. ", "Nào, ta đi tiếp: ", "Xin lỗi nhé! "),
        ("Đây là phần bị thiếu:\n\n", "Xin lỗi, lúc nãy hết chỗ.\n\n"),
    ),
    "id": Language(
        "Di ujung desa ada bengkel perahu yang atapnya dari daun kelapa. Pemiliknya memilih kayu "
        "dengan mengetuknya dan mendengarkan bunyinya. Satu perahu selesai dalam empat bulan kalau "
        "hujan tidak datang lebih awal. Anak-anak mengumpulkan serutan untuk membuat api unggun di "
        "pantai.\n\nSetelah perahu turun ke laut, seluruh desa makan bersama di bawah pohon. Sisa "
        "cat dipakai untuk papan nama sekolah. Malamnya pemilik bengkel lanjut bekerja, karena "
        "pesanan berikutnya sudah menunggu sejak musim panen.",
        ("Aduh, terputus tadi. ", "Baik, begini: ", "Maaf ya! "),
        ("Ini bagian yang kurang:\n\n", "Maaf, tempatnya habis.\n\n"),
    ),
    "zh": Language(
        "老城区的钟楼每天敲三次，第一声总是比收音机慢半分钟。守钟人住在楼下的小屋里，窗台上摆着六盆兰花。"
        "他说只要花还开着，时间就不会走错。游客上楼之前要先脱鞋，因为楼梯是两百年前的木头。\n\n"
        "到了冬天，守钟人继续每天清晨扫雪，扫完才去吃早饭。剩余的时间他用来修理齿轮，也教邻居的孩子认字。"
        "去年钟停过一次，全城的人都迟到了，只有他没有道歉。他说，抱歉的应该是那场大雪，而不是钟。"
        "后来市政府送来一台新机器，他把它放在角落里，接着用手上发条。",
        ("哎呀，刚才断了。", "好，往下写：", "不好意思！"),
        ("下面是没写完的部分：\n\n", "对不住，刚才位置不够。\n\n"),
    ),
    "ja": Language(
        "港の近くにある小さな印刷所では、今でも活字を一本ずつ拾って本を作っている。主人は朝の光でしか色を決めない。"
        "紙の匂いが好きだという客が、用もないのに椅子に座っていることもある。猫は刷り上がった紙の上で眠る。\n\n"
        "雨の日は紙が湿るので、仕事は続けられない。そんな日は残りの活字を磨き、古い詩集を読み返す。"
        "続きを待つ読者のために、主人は手紙を書いて遅れを詫びる。それでも誰も怒らない。"
        "本が届くころには、たいてい季節が一つ進んでいる。",
        ("あっ、途中で切れました。", "では、この先です：", "すみません！"),
        ("足りなかった部分はこちらです：\n\n", "失礼、枠がいっぱいでした。\n\n"),
    ),
    "ko": Language(
        "산 아래 도자기 마을에는 가마가 일곱 개 있지만 지금은 두 개만 불을 땐다. 할머니는 흙을 만져 보고 비가 올지 "
        "맞힌다. 그릇을 사러 오는 손님은 먼저 차를 한 잔 마셔야 한다. 서두르는 사람에게는 팔지 않는다고 한다.\n\n"
        "겨울이 오면 흙이 얼어서 작업을 계속할 수 없다. 그때는 나머지 장작을 정리하고 이야기를 나눈다. 작년에 깨진 "
        "항아리는 마당에 그대로 두었다. 봄이 되면 그 안에서 민들레가 핀다고 아이들이 좋아한다.",
        ("아이고, 중간에 끊겼네요. ", "자, 그럼 다음은: ", "미안해요! "),
        ("빠진 부분은 다음과 같아요:\n\n", "죄송해요, 자리가 모자랐어요.\n\n"),
    ),
    "ar": Language(
        "في آخر الزقاق دكان صغير يبيع الكتب القديمة، وصاحبه لا يسأل أحدا عما يبحث. يجلس على كرسي من "
        "الخيزران ويشرب الشاي بالنعناع. على الرفوف خرائط ودواوين ورسائل لم تصل إلى أصحابها. يأتي الطلاب "
        "بعد العصر ويقرؤون واقفين.\n\nحين ينقطع التيار يشعل صاحب الدكان قنديلا، ويتابع القراءة بصوت عال. "
        "بقية الليل تمضي في الحديث عن مدن بعيدة. وفي الصباح يكنس العتبة، ويضع وعاء ماء للقطط التي تنتظر.",
        ("عفوا، توقف الكلام هنا. ", "حسنا، هيا: ", "المعذرة! "),
        ("هذا ما كان ناقصا:\n\n", "أعتذر، لم تكن المساحة كافية.\n\n"),
    ),
    "he": Language(
        "בקצה השכונה יש גינה שהתושבים נטעו במקום שבו עמד פעם מפעל. כל משפחה אחראית על ערוגה אחת ועל "
        "דלי אחד. בשבת אחר הצהריים באים גם אלה שאין להם ערוגה ומביאים עוגה. הילדים מחפשים חלזונות מתחת "
        "לאבנים.\n\nבקיץ חוסכים במים ומשקים רק אחרי השקיעה. ההמשך תלוי ברוח, אומרת השכנה, ומכסה את "
        "העגבניות בבד ישן. שאר השעות שייכות לציפורים, שיודעות בדיוק מתי אף אחד לא מסתכל.",
        ("אוי, זה נקטע. ", "טוב, קדימה: ", "סליחה! "),
        ("הנה מה שחסר:\n\n", "מצטער, נגמר המקום.\n\n"),
    ),
    "hi": Language(
        "नदी के किनारे एक पुरानी नाव उलटी पड़ी है, और उसके नीचे बच्चे दोपहर में छिपते हैं। मल्लाह कहता है कि यह नाव "
        "तीन बाढ़ देख चुकी है। गाँव के लोग हर साल उसे रंगते हैं, पर पानी में नहीं उतारते। शाम को वहाँ कहानियाँ सुनाई "
        "जाती हैं।\n\nबरसात में रास्ता बंद हो जाता है और डाकिया तैरकर आता है। शेष दिन लोग बरामदे में बैठकर टोकरियाँ "
        "बुनते हैं। सर्दियों में धूप जारी रहती है, इसलिए मेला नदी की रेत पर लगता है।",
        ("अरे, बीच में रुक गया। ", "तो चलिए: ", "क्षमा करें! "),
        ("जो छूट गया था, वह यह है:\n\n", "माफ़ कीजिए, जगह भर गई थी।\n\n"),
    ),
    "th": Language(
        "ร้านซ่อมจักรยานใต้ต้นมะขามเปิดมาตั้งแต่สมัยปู่ เจ้าของร้านจำเสียงโซ่ของทุกคันในหมู่บ้านได้ "
        "เด็ก ๆ มานั่งดูเขาปะยางหลังเลิกเรียน บางวันเขาแจกขนมแทนเงินทอน\n\nพอถึงหน้าฝน ถนนกลายเป็นโคลน "
        "และงานก็เพิ่มเป็นสองเท่า เขาทำงานต่อจนมืดแล้วจึงปิดร้าน ขอโทษลูกค้าที่ต้องรอ แล้วเดินกลับบ้าน "
        "ที่เหลือของคืนนั้นเงียบสงบ มีแต่เสียงกบกับฝนที่ตกลงบนหลังคาสังกะสี",
        ("อ้าว ขาดไปเลย ", "เอาละ ไปกันเลย: ", "โทษที! "),
        ("ส่วนที่ขาดไปคือ:\n\n", "ขออภัย ที่เต็มเสียก่อน\n\n"),
    ),
}

HELD_OUT = frozenset({"pt", "nl", "uk", "hu", "id", "he", "th", "fi"})
"""Languages that are not looked at while the rules are changed."""

GENRES: dict[str, str] = {
    "python": (
        "import csv\nfrom pathlib import Path\n\n\ndef load(path: Path) -> list[dict[str, str]]:\n"
        '    """Read all rows of a file."""\n    with path.open(newline="") as file:\n'
        "        return list(csv.DictReader(file))\n\n\ndef totals(rows: list[dict[str, str]]) -> "
        "dict[str, float]:\n    sums: dict[str, float] = {}\n    for row in rows:\n        key = "
        'row["country"]\n        sums[key] = sums.get(key, 0.0) + float(row["amount"])\n    return '
        "sums\n\n\ndef report(sums: dict[str, float]) -> None:\n    for key in sorted(sums):\n"
        '        print(f"{key:<20}{sums[key]:>12.2f}")\n\n\nif __name__ == "__main__":\n'
        '    report(totals(load(Path("sales.csv"))))\n'
    ),
    "table": (
        "| city | river | bridges | opened |\n|---|---|---|---|\n| Porto | Douro | 6 | 1886 |\n"
        "| Lyon | Rhône | 14 | 1575 |\n| Praha | Vltava | 18 | 1402 |\n| Graz | Mur | 9 | 1845 |\n"
        "| Basel | Rhein | 5 | 1905 |\n| Ghent | Leie | 11 | 1744 |\n| Turin | Po | 7 | 1813 |\n"
        "| Riga | Daugava | 4 | 1872 |\n| Wien | Donau | 12 | 1876 |\n| Sevilla | Guadalquivir | 8 "
        "| 1852 |\n| Bergen | Vågen | 2 | 1930 |\n| Split | Jadro | 3 | 1968 |\n"
    ),
    "csv": (
        "id,name,team,score,joined\n101,Amara Diallo,red,88,2021-03-04\n102,Bruno Kessler,blue,73,"
        "2020-11-30\n103,Chiyo Tanaka,red,91,2022-07-19\n104,Dmitri Volkov,green,65,2019-05-02\n"
        "105,Elif Yıldız,blue,79,2023-01-15\n106,Farid Nasser,green,84,2021-09-27\n107,Greta Lund,"
        "red,90,2020-02-08\n108,Hugo Marchand,blue,68,2022-12-01\n109,Inés Robledo,green,95,2021-06"
        "-22\n110,Jonas Weber,red,71,2019-10-13\n"
    ),
    "json": (
        '{\n  "service": "billing",\n  "version": 7,\n  "endpoints": [\n    {\n      "path": '
        '"/invoices",\n      "method": "GET",\n      "auth": true,\n      "timeout": 30\n    },\n'
        '    {\n      "path": "/refunds",\n      "method": "POST",\n      "auth": true,\n      '
        '"timeout": 45\n    },\n    {\n      "path": "/health",\n      "method": "GET",\n      '
        '"auth": false,\n      "timeout": 5\n    }\n  ],\n  "owner": {\n    "name": "payments",\n'
        '    "pager": "+1 555 0100"\n  }\n}\n'
    ),
    "yaml": (
        "name: nightly\non:\n  schedule:\n    - cron: '15 3 * * *'\njobs:\n  build:\n    runs-on: "
        "linux\n    steps:\n      - name: checkout\n        uses: actions/checkout\n      - name: "
        "install\n        run: make deps\n      - name: test\n        run: make check\n  publish:\n"
        "    needs: build\n    runs-on: linux\n    steps:\n      - name: upload\n        run: make "
        "dist && make upload\n        env:\n          TOKEN: secret\n"
    ),
    "latex": (
        "\\section{Convergence}\nLet $f\\colon \\mathbb{R}^n \\to \\mathbb{R}$ be convex and let "
        "$x_k$ denote the iterates. We assume that the step sizes satisfy $\\sum_k \\alpha_k = "
        "\\infty$.\n\\begin{theorem}\nIf $\\alpha_k \\to 0$ then $\\liminf_k f(x_k) = f^\\ast$.\n"
        "\\end{theorem}\n\\begin{proof}\nSuppose the contrary. Then there is $\\varepsilon > 0$ such "
        "that $f(x_k) \\ge f^\\ast + \\varepsilon$ for all large $k$. Summing the inequality\n"
        "\\begin{equation}\n  \\|x_{k+1} - y\\|^2 \\le \\|x_k - y\\|^2 - 2\\alpha_k \\varepsilon + "
        "\\alpha_k^2 G^2\n\\end{equation}\nleads to a contradiction.\n\\end{proof}\n"
    ),
    "diff": (
        "--- a/server.go\n+++ b/server.go\n@@ -12,9 +12,14 @@ func Serve(addr string) error {\n "
        '\tmux := http.NewServeMux()\n \tmux.HandleFunc("/", index)\n-\tlog.Println("listening",'
        " addr)\n-\treturn http.ListenAndServe(addr, mux)\n+\tsrv := &http.Server{\n+\t\tAddr: addr,"
        "\n+\t\tHandler: mux,\n+\t\tReadHeaderTimeout: 5 * time.Second,\n+\t}\n+\tlog.Println("
        '"listening", srv.Addr)\n+\treturn srv.ListenAndServe()\n }\n \n func index(w '
        "http.ResponseWriter, r *http.Request) {\n"
    ),
    "lyrics": (
        "The lanterns drift along the quay,\nthe tide is coming home to me,\nand every stone "
        "remembers rain,\nand every road leads back again.\n\nOh, hold the line, the harbour sings,\n"
        "oh, hold the line on silver strings,\nthe night is long, the lamp is low,\nbut I know the "
        "way that the waters go.\n\nThe gulls have left their paper sky,\nthe masts are tall, the "
        "moon is shy,\nand if you call across the foam,\nI'll answer with a song of home.\n\nOh, hold "
        "the line, the harbour sings,\noh, hold the line on silver strings,\nthe night is long, the "
        "lamp is low,\nbut I know the way that the waters go.\n"
    ),
    "log": (
        "2026-03-01T08:00:01Z INFO  boot version=4.2.0 pid=311\n2026-03-01T08:00:02Z INFO  db "
        "connected host=pg-1 pool=20\n2026-03-01T08:00:09Z WARN  cache miss ratio=0.41 keys=1922\n"
        "2026-03-01T08:01:44Z ERROR upload failed id=7f3a reason=timeout after=30s\n"
        "2026-03-01T08:01:45Z INFO  retry id=7f3a attempt=2\n2026-03-01T08:01:47Z INFO  upload done "
        "id=7f3a bytes=88213\n2026-03-01T08:05:00Z INFO  gc freed=120MB pause=14ms\n"
    ),
    "fenced": (
        "First install the tool, then write a short script.\n\n```bash\nset -euo pipefail\nfor host "
        'in alpha beta gamma; do\n  scp build.tar.gz "$host:/tmp/"\n  ssh "$host" \'tar -xzf '
        "/srv/build.tar.gz -C /opt/app && systemctl restart app'\ndone\necho \"all hosts "
        'updated"\n```\n\nAfterwards check the status page. If one host is missing, run the loop '
        "again for that host alone:\n\n```bash\n./deploy.sh gamma\n```\n\nNothing else has to be "
        "changed.\n"
    ),
    "list": (
        "## Before the trip\n\n1. Check that the passports are valid for six months.\n2. Book the "
        "ferry; the night crossing is cheaper on weekdays.\n3. Copy the insurance papers and leave "
        "one copy at home.\n4. Pack a torch, a whistle and two litres of water per person.\n5. Tell "
        "the neighbours when you will be back.\n\n## On the way\n\n- Stop every two hours.\n- Keep "
        "the receipts for fuel.\n- Call the hut before noon, or the beds are given away.\n"
    ),
}

NEW_MANNERS = ("exact", "anchor", "own line", "own line + anchor", "same line", "same line + anchor",
               "echo of the line", "fence again", "nfd anchor", "straight anchor")  # fmt: skip


@dataclass
class Count:
    """What became of the joins of one manner."""

    cases: int = 0
    exact: int = 0
    kept: int = 0
    lost: int = 0
    """How many joins lost characters of the text."""


def subsequence(text: str, joined: str) -> bool:
    """Whether all characters of `text` are in `joined`, in order."""
    rest = iter(joined)
    return all(char in rest for char in text)


def continuations(manner: str, before: str, rest: str, words: Language) -> list[str]:
    """Return what the model may write, by the manner; `[]`: the manner does not apply here."""
    anchor, line = choose_anchor(before), before.rpartition("\n")[2]
    leads: dict[str, tuple[str, ...]] = {
        "exact": ("",),
        "own line": words.own_line,
        "same line": words.same_line,
        "echo of the line": (line,) if len(line) >= 12 else (),
    }
    fence = before.rfind("```bash\n")
    if fence >= 0 and "\n```" not in before[fence + 7 :] and before.endswith("\n"):
        leads["fence again"] = ("```bash\n",)
    if anchor is not None:
        leads |= {
            "anchor": (anchor,),
            "own line + anchor": tuple(one + anchor for one in words.own_line),
            "same line + anchor": tuple(one + anchor for one in words.same_line),
            "nfd anchor": (unicodedata.normalize("NFD", anchor),),
            "straight anchor": (anchor.replace("’", "'").replace("“", '"').replace("”", '"'),),
        }
    return [lead + rest for lead in leads.get(manner, ())]


def join_streamed(before: str, after: str, size: int = 7) -> tuple[str, Verdict]:
    """Join as a stream does: all of `before` is shown, `after` comes in pieces."""
    seam = Seam(before, anchor=choose_anchor(before))
    shown = "".join(seam.feed(after[at : at + size]) for at in range(0, len(after), size))
    shown += seam.finish()
    assert seam.verdict is not None
    return before + shown, seam.verdict


def texts(*, held_out: bool) -> Iterator[tuple[str, str, Language]]:
    """Yield each text with its name and the words that may precede its continuation."""
    for name, language in LANGUAGES.items():
        if (name in HELD_OUT) is held_out:
            yield name, language.text, language
    for at, (name, text) in enumerate(GENRES.items()):
        if (at % 5 == 4) is held_out:
            yield name, text, LANGUAGES["en"]


def measure(
    *, step: int, held_out: bool, failures: int = 0
) -> tuple[dict[str, Count], dict[str, Count]]:
    """Return the counts by manner and by text."""
    counts, by_text = defaultdict[str, Count](Count), defaultdict[str, Count](Count)
    for name, text, words in texts(held_out=held_out):
        for cut in range(len(text) // 4, len(text) - 10, step):
            before, rest = text[:cut], text[cut:]
            for manner in NEW_MANNERS:
                for after in continuations(manner, before, rest, words):
                    joined, verdict = join_streamed(before, after)
                    lost = not subsequence(text, joined)
                    for count in (counts[manner], by_text[name]):
                        count.cases += 1
                        count.exact += joined == text
                        count.lost += lost
                        count.kept += joined != text and not lost
                    if joined != text and (lost or manner in SHOULD_BE_EXACT) and failures > 0:
                        failures -= 1
                        print(f"-- {name} {manner} {'LOST' if lost else 'kept'} {verdict}")
                        print(f"   {before[-50:]!r} | {after[:90]!r}")
    return counts, by_text


SHOULD_BE_EXACT = frozenset(
    {"exact", "anchor", "own line + anchor", "same line + anchor", "nfd anchor", "straight anchor"}
)
"""Manners with evidence enough, in every language."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step", type=int, default=3, help="cut at every so many characters")
    parser.add_argument("--failures", type=int, default=0, help="show so many wrong joins")
    parser.add_argument("--held-out", action="store_true", help="use the texts that are held out")
    arguments = parser.parse_args()
    counts, by_text = measure(
        step=arguments.step, held_out=arguments.held_out, failures=arguments.failures
    )
    print(f"{'manner':22}{'cases':>8}{'exact':>9}{'kept':>7}{'lost':>7}")
    for rows in (counts, by_text):
        for name, count in rows.items():
            share = 100 * count.exact / count.cases
            print(f"{name:22}{count.cases:>8}{share:>8.2f}%{count.kept:>7}{count.lost:>7}")
        print()
    return int(any(count.lost for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
