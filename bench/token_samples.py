"""Short texts written for the token estimate's calibration table and tests: (kind, text)."""

SAMPLES: list[tuple[str, str]] = [
    (
        "English prose",
        "The train left an hour late, and by the time we reached the coast the rain had stopped. My sister had already found a small hotel near the harbour, with a view of the fishing boats and a kitchen that stayed open until midnight. We ate soup, talked about the year behind us, and agreed to come back in spring when the gardens are open again.",
    ),
    (
        "English chat",
        "hey! did you get my message yesterday? I think the meeting got moved to Thursday at 3pm, not Wednesday. Also, could you remind me what the wifi password was? thanks so much :)",
    ),
    (
        "English support",
        "I was charged twice on March 4th for invoice INV-2041 ($49.00). Please refund one of the payments. My account email is on file, and I've already tried restarting the app as you suggested, but the billing page still shows both.",
    ),
    (
        "English technical",
        "When a session is closed, its counters are flushed and the summary is embedded. If the embedder can't be reached within the configured timeout, the query falls back to lexical ranking and the result says so. Retries use exponential backoff with jitter; a job that fails eight times is moved to the dead letter queue.",
    ),
    (
        "Markdown",
        "## Steps\n\n1. Install the package: `pip install example`\n2. Set `EXAMPLE_TOKEN` in your shell\n3. Run **example serve --port 8080**\n\n| Option | Default | Meaning |\n|---|---|---|\n| `--port` | 8080 | where it listens |\n| `--debug` | off | more output |\n",
    ),
    (
        "Python",
        'def moving_average(values, width):\n    """Mean of each window of `width` values."""\n    if width <= 0 or width > len(values):\n        raise ValueError(f"bad width: {width}")\n    total = sum(values[:width])\n    result = [total / width]\n    for i in range(width, len(values)):\n        total += values[i] - values[i - width]\n        result.append(total / width)\n    return result\n',
    ),
    (
        "SQL",
        "select u.name, count(*) filter (where o.state = 'paid') as paid, sum(o.amount) as total\nfrom users u join orders o on o.user_id = u.id\nwhere o.created_at >= now() - interval '30 days'\ngroup by u.name having sum(o.amount) > 100\norder by total desc limit 20;\n",
    ),
    (
        "JSON",
        '{"order_id": "A-10293", "items": [{"sku": "KB-84-DE", "qty": 2, "price_cents": 8950}, {"sku": "MS-11", "qty": 1, "price_cents": 2499}], "shipped": false, "address": {"street": "Lindenweg 12", "zip": "04107", "city": "Leipzig"}, "created": "2024-03-18T09:41:07Z"}',
    ),
    (
        "Log",
        "2024-05-13 10:22:31,902 WARN  [worker-7] c.e.queue.Consumer - retry 3/8 for job 5f0c2b7e: connection reset by peer (10.0.4.17:5432)\n2024-05-13 10:22:36,114 INFO  [worker-7] c.e.queue.Consumer - job 5f0c2b7e done in 4211 ms\n",
    ),
    (
        "Identifiers",
        "user_account_id getUserNameFromList XMLHttpRequest MAX_RETRY_COUNT src/main/java/com/example/App.java https://example.com/a/b?page=2&sort=desc 7d9f1c6e-52b3-4c8e-9a41-0f6b2d8e7c35 9b74c9897bac770ffc029102a200c5de",
    ),
    (
        "German",
        "Gestern Nachmittag haben wir die neue Waschmaschine geliefert bekommen, aber der Wasseranschluss passte nicht. Der Monteur kommt am Donnerstag noch einmal vorbei und bringt ein Verlängerungsstück mit. Bis dahin waschen wir unsere Wäsche bei den Nachbarn.",
    ),
    (
        "French",
        "Nous avons déménagé l'été dernier dans une maison près de la rivière. Le matin, on entend les oiseaux et parfois le bruit d'un bateau. Les enfants vont à l'école à vélo, et le samedi nous achetons du pain frais au marché du village.",
    ),
    (
        "Spanish",
        "El martes pasado perdí el autobús y llegué tarde a la reunión. Mi compañera ya había explicado el presupuesto, así que solo tuve que responder algunas preguntas sobre las fechas de entrega. Después fuimos a comer juntos cerca de la oficina.",
    ),
    (
        "Italian",
        "Mia nonna coltiva pomodori e basilico sul balcone. Ogni domenica prepara il sugo per tutta la famiglia e racconta storie della sua infanzia in campagna, quando la strada per la città era ancora di terra.",
    ),
    (
        "Portuguese",
        "A consulta foi remarcada para a próxima segunda-feira às nove horas. Por favor, traga os exames anteriores e a lista dos remédios que está tomando. Se não puder comparecer, avise com um dia de antecedência.",
    ),
    (
        "Dutch",
        "Vanochtend was de brug weer open, dus stonden we een kwartier stil met de fiets. Mijn collega had gelukkig al koffie gezet toen ik binnenkwam. Morgen neem ik een andere route langs het kanaal.",
    ),
    (
        "Polish",
        "W zeszłym tygodniu zepsuł się nam piekarnik, więc święta spędziliśmy u rodziców. Mama przygotowała pierogi z kapustą i grzybami, a tata opowiadał, jak kiedyś zgubił się w górach podczas śnieżycy.",
    ),
    (
        "Czech",
        "Dnes ráno přišel účet za elektřinu a je skoro dvakrát vyšší než loni. Musíme zjistit, jestli není porucha na měřiči, nebo jestli jsme opravdu tolik topili. Zítra zavolám na zákaznickou linku.",
    ),
    (
        "Finnish",
        "Viime viikonloppuna kävimme mökillä ja saunoimme järven rannalla. Vesi oli vielä kylmää, mutta lapset uivat silti. Illalla paistoimme makkaraa nuotiolla ja kuuntelimme, kuinka tuuli humisi mäntyjen latvoissa.",
    ),
    (
        "Hungarian",
        "Tegnap este a szomszédunk átjött, és segített megjavítani a kerékpárt. Kiderült, hogy csak a lánc lazult meg. Utána együtt vacsoráztunk, és megbeszéltük a nyári kirándulást a tóhoz.",
    ),
    (
        "Turkish",
        "Dün akşam arkadaşlarımızla sahilde yürüdük ve yeni açılan lokantada balık yedik. Garson bize tatlıyı ikram etti. Eve dönerken yağmur başladı ama kimse şemsiye getirmemişti.",
    ),
    (
        "Vietnamese",
        "Cuối tuần trước chúng tôi về quê thăm ông bà. Trời mưa suốt buổi sáng nên cả nhà ngồi uống trà và kể chuyện ngày xưa. Buổi chiều, em trai tôi giúp ông sửa lại mái hiên.",
    ),
    (
        "Indonesian",
        "Kemarin sore kami pergi ke pasar untuk membeli sayuran dan ikan segar. Harganya sedikit naik karena musim hujan. Setelah itu, ibu memasak sup dan kami makan bersama di teras.",
    ),
    (
        "Swahili",
        "Jana tulikwenda sokoni kununua matunda na mboga. Mvua ilinyesha sana, kwa hiyo tulirudi nyumbani mapema. Jioni tulipika chakula pamoja na kuzungumza kuhusu safari ya wiki ijayo.",
    ),
    (
        "Russian",
        "Вчера вечером мы долго гуляли по набережной и разговаривали о планах на лето. Брат хочет поехать в горы, а я предпочла бы остаться у моря. В конце концов решили разделить отпуск на две части.",
    ),
    (
        "Ukrainian",
        "Минулого тижня ми посадили в саду три яблуні та кущ смородини. Бабуся каже, що врожай буде років за два. А поки що ми їздимо по яблука до сусіднього села.",
    ),
    (
        "Greek",
        "Το περασμένο Σάββατο πήγαμε στο νησί με το πρωινό πλοίο. Ο ήλιος έκαιγε, αλλά στη σκιά των πεύκων φυσούσε ένα δροσερό αεράκι. Το βράδυ φάγαμε ψάρι δίπλα στο λιμάνι.",
    ),
    (
        "Armenian",
        "Երեկ մենք այցելեցինք մեր տատիկին, որն ապրում է լեռնային փոքրիկ գյուղում։ Նա մեզ համար տաք հաց թխեց և պատմեց իր մանկության մասին։",
    ),
    (
        "Georgian",
        "გუშინ საღამოს მეგობრებთან ერთად ვივახშმეთ და დიდხანს ვისაუბრეთ. ხვალ დილით მთაში მივდივართ, ამიტომ ადრე უნდა დავიძინოთ.",
    ),
    (
        "Hebrew",
        "אתמול בערב ישבנו במרפסת ודיברנו על הטיול המתוכנן לצפון. אחותי רוצה לטייל ברגל, ואני מעדיף לנסוע לאורך החוף ולעצור בכל כפר קטן.",
    ),
    (
        "Arabic",
        "ذهبنا أمس إلى السوق القديم واشترينا بعض الفواكه والتوابل. كان الجو لطيفًا والناس كثيرين. في المساء أعدّت جدتي عشاءً لذيذًا وحكت لنا قصصًا من طفولتها.",
    ),
    (
        "Persian",
        "دیروز عصر با دوستانم به پارک رفتیم و تا شب قدم زدیم. هوا کمی سرد بود، اما چای داغ و گفت‌وگوی خوب همه را گرم کرد. هفتهٔ آینده قرار است به کوه برویم.",
    ),
    (
        "Hindi",
        "कल शाम हम लोग नदी के किनारे टहलने गए थे। मौसम बहुत अच्छा था और बच्चे पतंग उड़ा रहे थे। लौटते समय हमने गरम चाय पी और अगले हफ्ते की यात्रा के बारे में बात की।",
    ),
    (
        "Bengali",
        "গতকাল বিকেলে আমরা নদীর ধারে হাঁটতে গিয়েছিলাম। আকাশে মেঘ ছিল, কিন্তু বৃষ্টি হয়নি। ফেরার পথে চা খেলাম আর আগামী সপ্তাহের কাজ নিয়ে কথা বললাম।",
    ),
    (
        "Tamil",
        "நேற்று மாலை நாங்கள் கடற்கரைக்கு நடந்து சென்றோம். காற்று குளிர்ச்சியாக இருந்தது. திரும்பும் வழியில் சூடான தேநீர் குடித்துவிட்டு அடுத்த வார பயணத்தைப் பற்றி பேசினோம்.",
    ),
    ("Telugu", "నిన్న సాయంత్రం మేము చెరువు దగ్గరికి నడిచి వెళ్ళాము. పిల్లలు గాలిపటాలు ఎగురవేశారు. తిరిగి వచ్చేటప్పుడు వేడి టీ తాగి కబుర్లు చెప్పుకున్నాము."),
    (
        "Thai",
        "เมื่อวานตอนเย็นพวกเราไปเดินเล่นริมแม่น้ำ อากาศเย็นสบายและมีลมพัดเบา ๆ หลังจากนั้นเรากินก๋วยเตี๋ยวที่ร้านข้างทางแล้วคุยกันเรื่องแผนการเดินทางสัปดาห์หน้า",
    ),
    ("Amharic", "ትናንት ማታ ከጓደኞቻችን ጋር ቡና ጠጣን እና ስለ መጪው ጉዞ ተወያየን። ዝናቡ ካቆመ በኋላ ወደ ቤት በእግር ተመለስን።"),
    (
        "Chinese, simplified",
        "上周末我们去了郊外的一个小村庄，那里的空气很新鲜。中午在农家吃了自己种的蔬菜，下午沿着河边散步，孩子们玩得非常开心。回家的路上大家都累得睡着了。",
    ),
    (
        "Chinese, traditional",
        "昨天下午我們去市場買了新鮮的水果，順便在老街上喝了一杯茶。店主說這間舖子已經開了四十年，現在由他的女兒繼續經營。",
    ),
    (
        "Japanese",
        "先週の土曜日、家族で海の近くの温泉に行きました。天気がよくて、窓から遠くの島まで見えました。夕食には焼き魚と味噌汁が出て、子どもたちはデザートのアイスクリームを一番喜んでいました。",
    ),
    (
        "Korean",
        "지난 주말에 친구들과 함께 산에 올라갔습니다. 날씨가 맑아서 멀리 바다까지 보였습니다. 내려오는 길에 작은 식당에서 칼국수를 먹고 다음 여행 계획을 이야기했습니다.",
    ),
    ("Emoji", "Happy birthday!! 🎉🎂 We'll bring the cake 🍰 and Sam brings the music 🎶 — see you at 8 😄👍🏽 ❤️"),
]
