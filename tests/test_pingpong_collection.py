"Chat exports: nothing is lost unsaid, nobody is recognisable, plans keep their quotas, sheets are checked."
import csv, io, json, random, string, time, unicodedata
from collections import Counter
from datetime import datetime, timedelta
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from polyroute import pingpong_collection as pc
from polyroute.items import DataError, write_jsonl
from polyroute.pingpong_collection import DELETED, Dialogue, Export, Message, QA, Turn, import_chat, read_discord, read_plain, read_whatsapp

fast = settings(max_examples=40, deadline=None)
PEOPLE = {'1': ('budi.santoso', 'Budi Santoso'), '2': ('ratna_w', 'Ratna Wijaya'), '3': ('sani77', 'Sani Danladi'), '4': ('mina', 'أمينة بن علي'), '9': ('helper', 'Helper')}


def user(id): return dict(id=id, name=PEOPLE[id][0], discriminator='0000', nickname=PEOPLE[id][1], isBot=id == '9')

def message(n, by, content, **more):
    return dict(id=str(n), type='Default', timestamp=(datetime(2024, 5, 31, 19) + timedelta(seconds=20*n)).isoformat() + '+00:00', timestampEdited=None, isPinned=False, content=content, author=user(by), attachments=[], embeds=[], stickers=[], reactions=[], mentions=[]) | more

def discord(path, messages, **more):
    path.write_text(json.dumps(dict(guild=dict(id='5', name='g'), channel=dict(id='77', name='c'), messages=messages, messageCount=len(messages)) | more, ensure_ascii=True), encoding='utf-8')
    return path

# ---- privacy

BOLD = str.maketrans({c: chr(0x1D41A + i) for i, c in enumerate(string.ascii_lowercase)})
DISGUISES = {'as it is': lambda n: n, 'capitals': str.upper, 'small letters': str.lower, 'first part': lambda n: n.split()[0], 'last part': lambda n: n.split()[-1], 'suffix': lambda n: n.split()[0] + 'nya', 'possessive': lambda n: n.split()[0] + "'s",
             'repeated letters': lambda n: n.split()[0].replace('i', 'iii').replace('a', 'aaa'), 'digits': lambda n: n.lower().replace('i', '1').replace('o', '0').replace('a', '4').replace('s', '5'), 'letters apart': lambda n: ' '.join(n.split()[0]), 'dots': lambda n: '.'.join(n.split()[0]),
             'full width': lambda n: ''.join(chr(ord(c) + 0xFEE0) if '!' <= c <= '~' else c for c in n), 'bold': lambda n: n.lower().translate(BOLD), 'accents': lambda n: unicodedata.normalize('NFC', ''.join(c + '\u0301' if c in 'aiou' else c for c in n)), 'look-alikes': lambda n: n.replace('a', 'а').replace('o', 'о').replace('i', 'і').replace('s', 'ѕ'),
             'zero width': lambda n: '\u200b'.join(n), 'soft hyphen': lambda n: '\u00ad'.join(n.split()[-1]), 'run together': lambda n: n.replace(' ', '').lower(), 'handle': lambda n: '@' + n.replace(' ', '_').lower() + '_99', 'hashtag': lambda n: '#' + n.replace(' ', '') + 'Fans', 'backwards': lambda n: n.split()[-1][::-1].lower(),
             'mail': lambda n: n.replace(' ', '.').lower() + '@mail.id', 'link': lambda n: 'https://x.com/' + n.replace(' ', '').lower() + '?t=1', 'emoji': lambda n: ':' + n.split()[0].lower() + '_lol:', 'bold marks': lambda n: f'**{n}**', 'mention': lambda n: '@' + n, 'quoted': lambda n: f'"{n}"'}
LOOKS = str.maketrans('аоіѕ', 'aois')

def letters_only(text):
    "What a reader sees of a text: small Latin letters, nothing between them, none twice; the digits that stand for letters read as such."
    plain = ''.join(c for c in unicodedata.normalize('NFKD', text.translate(LOOKS)).lower().replace('1', 'i').replace('0', 'o').replace('4', 'a').replace('5', 's') if 'a' <= c <= 'z')
    return ''.join(c for c, before in zip(plain, ' ' + plain) if c != before)

@pytest.mark.parametrize('disguise', DISGUISES)
def test_no_name_is_left(tmp_path, disguise):
    "A reader who throws away everything but letters finds no name; the words around it hold none by chance."
    rows, around = [], ['oh', 'ke', '🙂', 'yup', 'hmm', 'pl']
    for n in range(1, 61):
        name = PEOPLE[str(1 + n % 3)][1]
        at = n % len(around)
        rows.append(message(n, str(1 + (n + 1) % 3), ' '.join([*around[:at], DISGUISES[disguise](name), *around[at:]])))
    got = import_chat(read_discord(discord(tmp_path/'c.json', rows)), 'x')
    assert sum(got.report['hidden'].values()) >= 60 and len(got.dialogues[0].turns) == 60
    for t in got.dialogues[0].turns:
        seen = letters_only(t.text)
        for word in ('budi', 'santoso', 'ratna', 'wijaya', 'sani', 'danladi'):
            assert word not in seen and word[::-1] not in seen, (disguise, t.text)
        assert sum(w in t.text for w in around) >= len(around) - 1                    # the text around it stands

def test_the_oracle_sees_the_names():
    for f in DISGUISES.values(): assert any(w in letters_only(f('Budi Santoso')) or w[::-1] in letters_only(f('Budi Santoso')) for w in ('budi', 'santoso'))

def test_names_of_other_scripts_and_outsiders(tmp_path):
    rows = [message(1, '4', 'قال علي لأمينة'), message(2, '1', 'kata Pak Joko dan Hélène'), message(3, '2', 'آ مـيـنـة وأمــينة')]
    got = import_chat(read_discord(discord(tmp_path/'c.json', rows)), 'x', extra=['Joko', 'Hélène Martin'])
    text = ' '.join(t.text for t in got.dialogues[0].turns)
    assert 'Joko' not in text and 'Hélène' not in text and 'Helene' not in text and 'علي' not in text and '[name]' in text

def test_ordinary_words_stay(tmp_path):
    said = ['kali ini budaya kita', 'harga 411.000, jam 10.30', 'sudah budidaya lele?', 'tali', '@everyone ayo', 'b a c']
    rows = [message(n, '2' if n > 1 else '1', t) for n, t in enumerate(said, 1)]
    export = read_discord(discord(tmp_path/'c.json', rows))
    export.names, export.bots = {'1': ['Ali'], '2': ['Budi'], '9': ['Harga Jam']}, {'9'}       # a bot is nobody
    assert [t.text for t in import_chat(export, 'x').dialogues[0].turns] == said

def test_the_key_keeps_pseudonyms(tmp_path):
    first = import_chat(read_discord(discord(tmp_path/'a.json', [message(1, '2', 'x'), message(2, '1', 'y')])), 'a')
    again = import_chat(read_discord(discord(tmp_path/'b.json', [message(1, '1', 'x'), message(2, '3', '@Ratna Wijaya', mentions=[user('2')]), message(3, '2', 'z')])), 'b', key=first.key)
    assert [t.speaker for t in again.dialogues[0].turns] == ['B', 'C', 'A'] and again.dialogues[0].turns[1].text == '@A'
    assert not any(n in json.dumps([d.to_row() for d in again.dialogues]) for n in ('2024', 'budi', '"77"'))

# ---- nothing is lost unsaid

KIND = st.sampled_from(['text', 'text', 'text', 'bot', 'system', 'empty', 'gone', 'picture', 'emoji', 'twice'])

@fast
@given(st.lists(st.tuples(KIND, st.integers(1, 3), st.one_of(st.none(), st.integers(-3, 30)), st.integers(1, 4000)), min_size=1, max_size=25), st.sampled_from([(None, None), (30, None), (None, 15), (10, 15)]), st.integers(1, 3))
def test_counts_reconcile(tmp_path_factory, plan, cuts, fewest):
    "Every message is a turn or dropped for one reason, every reply a link or lost for one reason; checked against a slow recount."
    rows, clock = [], datetime(2024, 5, 31)
    for n, (kind, by, ref, wait) in enumerate(plan, 1):
        clock += timedelta(seconds=wait)
        m = message(n, str(by), {'text': f'word {n}', 'emoji': '😂'}.get(kind, ''), timestamp=clock.isoformat())
        if kind == 'bot': m |= dict(author=user('9'), content='beep')
        if kind == 'system': m |= dict(type='GuildMemberJoin', content='Joined the server.')
        if kind == 'gone': m |= dict(author=None, content='still here')
        if kind == 'picture': m |= dict(attachments=[dict(id='1', fileName='budi.png')])
        if kind == 'twice': m |= dict(id=str(max(n - 1, 1)), content='again')
        if ref is not None: m |= dict(type='Reply' if kind != 'system' else m['type'], reference=dict(messageId=str(ref), channelId='77'))
        rows.append(m)
    path = discord(tmp_path_factory.mktemp('x')/'c.json', rows)
    try: got = import_chat(read_discord(path), 'x', *cuts, speakers=(fewest, 4))
    except DataError: raise
    r, turns = got.report, [t for d in got.dialogues for t in d.turns]
    assert r['messages']['read'] == len(rows) == len(turns) + sum(r['messages']['dropped'].values())
    seen, dropped, kept = set(), Counter(), []
    for m in rows:
        bot = (m['author'] or {}).get('isBot')
        why = 'duplicate' if m['id'] in seen else 'system' if m['type'] == 'GuildMemberJoin' else 'bot' if bot else 'empty' if not m['content'] and not m['attachments'] else ''
        seen.add(m['id'])
        if why: dropped[why] += 1
        else: kept.append(m)
    assert {k: v for k, v in r['messages']['dropped'].items() if not k.startswith('session')} == dict(dropped)
    groups = []
    for m in kept:
        t = datetime.fromisoformat(m['timestamp'])
        if not groups or cuts[0] and t - last > timedelta(minutes=cuts[0]) or cuts[1] and t - groups[-1][1] >= timedelta(minutes=cuts[1]): groups.append(([], t))
        groups[-1][0].append(m); last = t
    groups = [g for g, _ in groups if fewest <= len({(m['author'] or {'id': 'x'})['id'] for m in g}) <= 4]
    assert [len(d.turns) for d in got.dialogues] == [len(g) for g in groups]
    links = [[next((k for k, o in enumerate(g[:n], 1) if (m.get('reference') or {}).get('messageId') == o['id']), None) for n, m in enumerate(g)] for g in groups]
    assert [[t.reply_to for t in d.turns] for d in got.dialogues] == links
    said = r['replies']['read']
    assert said == sum('reference' in m and m['type'] != 'GuildMemberJoin' for m in rows) == sum(l is not None for g in links for l in g) + sum(r['replies']['dropped'].values())

def test_reasons_of_lost_links(tmp_path):
    late = (datetime(2024, 6, 1)).isoformat()
    rows = [message(1, '1', 'a'), message(2, '9', 'bot'), message(3, '2', 'b', reference=dict(messageId='2')), message(4, '2', 'c', reference=dict(messageId='404')), message(5, '1', 'd', reference=dict(messageId='1', channelId='88')), message(6, '1', 'e', reference=dict(messageId='7')), message(7, '1', '', type='7', reference=dict(messageId='1')),
            message(8, '2', 'f', timestamp=late, reference=dict(messageId='1')), message(9, '2', 'g', timestamp=late, reference=dict(messageId=None))]
    r = import_chat(read_discord(discord(tmp_path/'c.json', rows)), 'x').report
    assert r['replies'] == dict(read=5, kept=0, dropped={'to a message dropped as bot': 1, 'to a message that the export does not hold': 1, 'to another channel': 1, 'to a message dropped as system': 1, 'to another session': 1})

def test_order_edits_and_what_else_there_is(tmp_path):
    rows = [message(2, '1', 'second', timestampEdited='2024-06-01T00:00:00+00:00'), message(1, '2', 'first', reactions=[dict(count=3, users=[user('3')])], embeds=[{}], isPinned=True), message(3, '1', 'see <@!2> in <#88> <:budi_lol:123> <@&5> <@404>', stickers=[dict(id='1', name='hi')])]
    got = import_chat(read_discord(discord(tmp_path/'c.json', rows)), 'x')
    assert [t.text for t in got.dialogues[0].turns][:2] == ['first', 'second']
    assert got.dialogues[0].turns[2].text.startswith('see @A in #channel') and 'budi' not in got.dialogues[0].turns[2].text and '[sticker]' in got.dialogues[0].turns[2].text and '404' not in got.dialogues[0].turns[2].text
    assert got.report['edited'] == 1 and got.report['notes'] == {'messages put in order of time': 1, 'reactions': 3, 'embeds': 1, 'pins': 1, '[sticker] in the text': 1} and got.report['people'] == 3

# ---- malformed exports

@pytest.mark.parametrize('text, says', [('', 'not a JSON file'), ('{"messages": [{"id": "1"', 'not a JSON file'), ('[]', '"messages"'), ('{"messages": []}', 'no message'), ('{"messages": {"id": 1}}', '"messages"'), ('{"messages": [5]}', 'message 1'), ('{"messages": [{"content": "x"}]}', 'message 1'),
    ('{"messages": [{"id": "1", "timestamp": "yesterday"}]}', "'yesterday' is no time"), ('{"messages": [{"id": "1", "content": 5}]}', 'content'), ('{"messages": [{"id": "1", "mentions": 5}]}', 'message 1'), ('{"messages": [{"id": "1", "reactions": ["x"]}]}', 'message 1')])
def test_malformed_discord(tmp_path, text, says):
    (tmp_path/'c.json').write_text(text)
    with pytest.raises(DataError, match='.*'.join(map(str, [says.replace('[', '\\[')]))): read_discord(tmp_path/'c.json')

def test_odd_messages(tmp_path):
    rows = [message(1, '1', '😂👨‍👩‍👧'), message(2, '2', 'half \ud83d here'), message(3, '4', 'مرحبا \u202eabc\u202c يا صديقي'), message(4, '1', 'x', author=None), message(5, '1', 'x', author=dict(id='456', name='Deleted User', nickname='Deleted User', isBot=False)), message(6, '2', 'line\nA: fake\u2028B: fake'), message(7, '2', 'ok', reference=dict(messageId='4'))]
    got = import_chat(read_discord(discord(tmp_path/'c.json', rows)), 'x')
    d = got.dialogues[0]
    assert d.turns[0].text == '😂👨‍👩‍👧' and d.turns[1].text == 'half \ufffd here' and d.turns[2].text == 'مرحبا \u202eabc\u202c يا صديقي' and d.turns[6].reply_to == 4 and len({d.turns[i].speaker for i in (3, 4)}) == 2
    assert got.report['notes'] == {'half of a surrogate pair replaced': 1}
    assert pc.dialogue_text(d).count('\n') == 8 and not any(l.startswith(('A: fake', 'B: fake')) for l in pc.dialogue_text(d).split('\n'))
    pc.write_dialogues(tmp_path/'d.jsonl', got.dialogues)
    assert pc.read_dialogues(tmp_path/'d.jsonl') == got.dialogues

def test_ten_thousand_messages_in_seconds(tmp_path):
    r, words = random.Random(0), 'makan dulu yuk besok kita ke kampus jam berapa ya literally can not wait kali alamat santai aja 😂 bro budi'.split()
    rows = [message(n, str(r.randint(1, 4)), ' '.join(r.choices(words, k=r.randint(1, 25))), **({'reference': dict(messageId=str(max(1, n - r.randint(1, 30))))} if n > 1 and r.random() < .4 else {})) for n in range(1, 10001)]
    path, start = discord(tmp_path/'c.json', rows), time.process_time()
    got = import_chat(read_discord(path), 'x')
    assert time.process_time() - start < 12 and got.report['messages']['kept'] == 10000 == len(got.dialogues[0].turns)
    assert sum(t.reply_to is not None for t in got.dialogues[0].turns) == got.report['replies']['read'] == sum('reference' in m for m in rows)

# ---- JSON lines and WhatsApp

def test_plain(tmp_path):
    rows = [dict(author='Sani', text='lafiya?', id='a'), dict(author='Amina', text='lafiya Sani', reply_to='a', names=['Ami']), dict(text='who?'), dict(author='x', text='beep', bot=True), dict(author='Sani', text='ami, ka ji?', mood=1)]
    got = import_chat(read_plain(write_jsonl(tmp_path/'c.jsonl', rows)), 'x')
    assert [(t.speaker, t.text, t.reply_to, t.seconds) for t in got.dialogues[0].turns] == [('A', 'lafiya?', None, None), ('B', 'lafiya @A', 1, None), ('C', 'who?', None, None), ('A', '@B, ka ji?', None, None)]
    assert got.report['notes'] == {"field 'mood'": 1} and got.report['messages']['dropped'] == {'bot': 1}
    for bad in ([dict(author=1, text='x')], [dict(author='x', text=None)], [dict(author='x', text='y', time='soon')]):
        with pytest.raises(DataError): read_plain(write_jsonl(tmp_path/'b.jsonl', bad))

FORMATS = {'dmy dash': ('%d/%m/%Y, %H:%M - {}: {}', 'dmy'), 'dmy short': ('%d/%m/%y, %H:%M - {}: {}', 'dmy'), 'german': ('%d.%m.%y, %H:%M - {}: {}', 'dmy'), 'dutch': ('%d-%m-%Y %H:%M - {}: {}', 'dmy'), 'indonesian': ('%d/%m/%y %H.%M - {}: {}', 'dmy'), 'american': ('%m/%d/%y, %I:%M\u202f%p - {}: {}', 'mdy'),
           'iso': ('%Y-%m-%d, %H:%M - {}: {}', 'ymd'), 'japanese': ('%Y/%m/%d %H:%M - {}: {}', 'ymd'), 'iphone': ('[%d/%m/%Y, %H:%M:%S] {}: {}', 'dmy'), 'iphone american': ('\u200e[%m/%d/%y, %I:%M:%S\u202f%p] {}: {}', 'mdy'), 'iphone german': ('[%d.%m.%y, %H:%M:%S] {}: {}', 'dmy'), 'french': ('%d/%m/%Y à %H:%M - {}: {}', 'dmy'), 'spanish': ('%d/%m/%y, %I:%M %p - {}: {}', 'dmy')}

@pytest.mark.parametrize('form', FORMATS)
def test_whatsapp_dates(tmp_path, form):
    pattern, order = FORMATS[form]
    r, t, rows = random.Random(form), datetime(2023, 1, 3, 8), []
    for n in range(60):
        t += timedelta(minutes=r.randint(1, 9000))
        rows.append((t.replace(second=0), r.choice(['Budi Santoso', '+62 812-3456-789', 'علي']), r.choice(['hai', 'jam 10:30 ya', 'two\nlines', 'a: b', 'https://x.id/a - b: c'])))
    lines = []
    for when, who, said in rows:
        stamp = when.strftime(pattern)
        if form == 'spanish': stamp = stamp.replace('AM', 'a.\u00a0m.').replace('PM', 'p.\u00a0m.')
        lines.append(stamp.format(who, said))
    (tmp_path/'c.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    for given_order in (None, order):
        got = read_whatsapp(tmp_path/'c.txt', given_order).messages
        assert [(m.time, m.person, m.text) for m in got] == rows

def test_whatsapp_oddities(tmp_path):
    text = ('[31/12/2023, 23:00:00] Grup Skripsi: \u200eMessages and calls are end-to-end encrypted.\n[31/12/2023, 23:01:00] Budi: \u200eimage omitted\n[31/12/2023, 23:02:00] Ratna: IMG-2023.jpg (file attached)\n[31/12/2023, 23:03:00] Budi: halo @\u2068Ratna\u2069 😂\n'
            '[31/12/2023, 23:04:00] Ratna: \u200eYou deleted this message.\n[31/12/2023, 23:05:00] Ratna: iya Budi \u200e<This message was edited>\n[31/12/2023, 23:06:00] Budi changed the subject to “a: b”\n[31/12/2023, 23:07:00] Budi: <Media tidak disertakan>\n[31/12/2023, 23:08:00] Ratna:\r\n')
    (tmp_path/'c.txt').write_bytes(text.encode())
    got = import_chat(read_whatsapp(tmp_path/'c.txt'), 'x')
    assert [(t.speaker, t.text) for t in got.dialogues[0].turns] == [('A', '[attachment]'), ('B', '[attachment]'), ('A', 'halo @B 😂'), ('B', 'iya @A'), ('A', '[attachment]')]
    assert got.report['messages'] == dict(read=9, kept=5, dropped=dict(system=2, deleted=1, empty=1), declared=None) and got.report['edited'] == 1

def test_whatsapp_numbers_are_people(tmp_path):
    (tmp_path/'c.txt').write_text('13/05/2024, 10:00 - +62 812-3456-7890: hai\n13/05/2024, 10:01 - ~ Ratna: @6281234567890 ya, +6281234567890 ini, ratna\n')
    assert [t.text for t in import_chat(read_whatsapp(tmp_path/'c.txt'), 'x').dialogues[0].turns] == ['hai', '@A ya, [phone] ini, @B']

@pytest.mark.parametrize('text, says', [('', 'no message'), ('hello\n', 'line 1: a message is expected'), ('31/12/2023 hello\n', 'line 1'), ('31/31/2023, 10:00 - A: x', 'fit neither'), ('01/02/2023, 10:00 - A: x\n03/02/2023, 10:00 - A: x', 'can be read as')])
def test_malformed_whatsapp(tmp_path, text, says):
    (tmp_path/'c.txt').write_text(text)
    with pytest.raises(DataError, match=says): read_whatsapp(tmp_path/'c.txt')
    (tmp_path/'c.txt').write_bytes(b'\xff\xfe')
    with pytest.raises(DataError, match='UTF-8'): read_whatsapp(tmp_path/'c.txt')

# ---- sessions, plans

@fast
@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.one_of(st.none(), st.integers(1, 60)), st.one_of(st.none(), st.integers(1, 60)))
def test_sessions(waits, gap, length):
    t = np.cumsum(waits)
    msgs = [Message(str(i), 'a', 'x', datetime(2024, 1, 1) + timedelta(minutes=int(m))) for i, m in enumerate(t)]
    parts = pc.sessions(msgs, gap, length)
    assert [m for p in parts for m in p] == msgs and all(parts)
    for p in parts:
        if gap: assert all(b.time - a.time <= timedelta(minutes=gap) for a, b in zip(p, p[1:]))
        if length: assert all(m.time - p[0].time < timedelta(minutes=length) for m in p)
    for p, q in zip(parts, parts[1:]):        # no cut without a reason
        assert gap and q[0].time - p[-1].time > timedelta(minutes=gap) or length and q[0].time - p[0].time >= timedelta(minutes=length)

@settings(max_examples=15, deadline=None)
@given(st.integers(4, 20), st.dictionaries(st.integers(2, 4), st.integers(1, 8), min_size=1), st.integers(0, 3))
def test_plans(n, quotas, seed):
    people = [f'p{i}' for i in range(n)]
    groups = pc.plan_groups(people, 'x', quotas, seed=seed)
    load = Counter({p: 0 for p in people}); load.update(p for g in groups for p in g.people)
    assert Counter(len(g.people) for g in groups) == quotas and all(len(set(g.people)) == len(g.people) for g in groups)
    assert max(load.values()) - min(load.values()) <= 1 and len({g.id for g in groups}) == len(groups)
    topics = Counter(g.topic for g in groups)
    assert max(topics.values()) - min([*topics.values(), *[0]*(len(topics) < 5)]) <= 1
    assert groups == pc.plan_groups(people, 'x', quotas, seed=seed)
    if n >= 8:
        for by in pc.assign(groups, people).values(): assert all(not set(by[g.id]) & set(g.people) and len(set(by[g.id])) == len(by[g.id]) for g in groups)

def test_plan_refuses():
    with pytest.raises(DataError, match='twice'): pc.plan_groups(['a', 'a', 'b', 'c'], 'x')
    with pytest.raises(DataError, match='topics for 1'): pc.plan_groups(list('abcd'), 'x', {2: 2}, {'education': 1})
    with pytest.raises(DataError, match='0 people'): pc.assign(pc.plan_groups(list('ab'), 'x', {2: 1}), list('ab'))

# ---- dialogues and sheets

def sample(id='d1'):
    kinds = ['answerable']*5 + list(pc.UNANSWERABLE)
    qa = tuple(QA(f'q{n}?', ('a', 'b', 'c', 'd', 'none'), 'ABCDA'[n % 5] if k == 'answerable' else 'E', k) for n, k in enumerate(kinds))
    return Dialogue(id, (Turn(1, 'A', 'x'), Turn(2, 'B', 'y', 1)), ('en',), 'education', 'p', (('en',), ('en',)), qa, ('One. Two. Three.', 'One. Two! Three? Four.'))

@pytest.mark.parametrize('change, says', [(lambda r: r.pop('id'), '"id"'), (lambda r: r.update(turns=[]), 'no turns'), (lambda r: r['turns'][1].update(n=3), 'without gaps'), (lambda r: r['turns'][1].update(reply_to=2), 'earlier turn'), (lambda r: r['turns'][1].update(reply_to=True), 'earlier turn'),
    (lambda r: r['turns'][0].update(text='a b'), '1 language labels for 2 tokens'), (lambda r: r.update(token_langs=[['en'], ['xx']]), "'xx'"), (lambda r: r.update(topic='sport'), 'sport'), (lambda r: r['qa'][0].update(answer='E'), 'A to D'), (lambda r: r['qa'][9].update(answer='A'), "E, not 'A'"), (lambda r: r['qa'][0].update(options=['a']), '5 are needed'),
    (lambda r: r['turns'][0].update(speaker=' '), 'needs a speaker'), (lambda r: r.update(token_langs=[['en']]*3), '3 turns have'), (lambda r: r['qa'][0].update(kind='hard'), "'hard'")])
def test_rows_are_validated(change, says):
    row = json.loads(json.dumps(sample().to_row()))
    assert pc.dialogue_of(row) == sample()
    change(row)
    with pytest.raises(ValueError, match=says): pc.dialogue_of(row)

def sheets(folder, dialogues, change=lambda t, rows: rows, sep=','):
    folder.mkdir(exist_ok=True)
    for t in ('qa', 'summaries', 'topics'):
        rows = change(t, [r for d in dialogues for r in pc.filled(d, t)])
        f = io.StringIO(); w = csv.DictWriter(f, pc.COLUMNS[t], delimiter=sep, lineterminator='\r\n'); w.writeheader(); w.writerows(rows)
        (folder/f'{t}.csv').write_bytes(('\ufeff' + f.getvalue()).encode())
    return folder

def blank(d): return Dialogue(d.id, d.turns, d.languages, None, d.prompt, d.token_langs)

@pytest.mark.parametrize('sep', [',', ';', '\t'])
def test_sheets_come_back(tmp_path, sep):
    ds = [sample('d1'), sample('d2')]
    assert pc.read_sheets(sheets(tmp_path/'s', ds, sep=sep), [blank(d) for d in ds]) == ds

def edit(task, row, **cells): return lambda t, rows: [r | cells if t == task and n == row else r for n, r in enumerate(rows)]

@pytest.mark.parametrize('change, says', [(edit('qa', 0, answer='E'), 'A to D'), (edit('qa', 5, answer='C'), 'unanswerable question is E'), (edit('qa', 1, B='a'), 'A and B are the same'), (edit('qa', 1, C=' '), 'option C is empty'), (edit('qa', 2, question='q0?'), 'stands 2 times'), (edit('qa', 6, kind='negation'), '0 questions of the kind antonym'),
    (edit('qa', 3, kind='antonym', answer='E'), '4 answerable'), (edit('qa', 9, E='nothing'), 'option E differs'), (edit('summaries', 0, summary='One. Two.'), 'has 2 sentences'), (edit('summaries', 0, summary='A. B. C. D. E. F.'), 'has 6 sentences'), (edit('summaries', 1, summary='One. Two. Three.'), 'the same'),
    (edit('topics', 0, topic='Sports'), "'Sports'"), (edit('topics', 0, dialogue='d9'), 'no such dialogue'), (lambda t, rows: rows[:9] if t == 'qa' else rows, '9 questions')])
def test_sheets_are_checked(tmp_path, change, says):
    ds = [sample()]
    faults = pc.check_sheets(sheets(tmp_path/'s', ds, change), [blank(d) for d in ds])
    assert any(says in f.what for f in faults), faults
    with pytest.raises(DataError): pc.read_sheets(tmp_path/'s', [blank(d) for d in ds])

def test_sheets_are_not_overwritten(tmp_path):
    pc.write_sheets([blank(sample())], tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {'qa.csv', 'summaries.csv', 'topics.csv', 'naturalness.csv', 'dialogues'}
    with pytest.raises(DataError, match='not overwritten'): pc.write_sheets([blank(sample())], tmp_path)
    assert len(pc.check_sheets(tmp_path, [blank(sample())], ['qa'])) > 10                      # an empty sheet is not a sound one
    check = pc.Check(['Budi Santoso'])
    assert any('holds a name' in f.what for f in pc.check_sheets(sheets(tmp_path/'s', [sample()], edit('summaries', 0, summary='Budi makan. Dua. Tiga.')), [blank(sample())], check=check))

@pytest.mark.parametrize('text, n', [('A. B. C.', 3), ('Harganya 3.500 rupiah. Lalu?', 2), ('No end', 1), ('', 0), ('Ia berkata "Ya!" lalu pergi.', 2), ('قال نعم. ثم ذهب؟', 2), ('Dr. Sani came... Then left', 2), ('صح۔ نعم۔', 2)])
def test_sentences(text, n): assert pc.count_sentences(text) == n

# CLI

def test_cli(tmp_path):
    from click.testing import CliRunner
    from polyroute.cli import main
    run = lambda *a: CliRunner().invoke(main, ['pingpong', *map(str, a)])
    src = discord(tmp_path/'c.json', [message(1, '1', 'halo @Ratna Wijaya'), message(2, '2', 'ya bud1', reference=dict(messageId='1')), message(3, '9', 'beep')])
    got = run('import', src, '--prefix', 't', '--out', tmp_path/'d.jsonl', '--key', tmp_path/'key.json')
    assert got.exit_code == 0 and '3 read, 2 kept; dropped: 1 bot' in got.output and 'Budi' not in (tmp_path/'d.jsonl').read_text()
    assert json.loads((tmp_path/'key.json').read_text())['1'] == 'A' and (tmp_path/'key.json').stat().st_mode & 0o077 == 0
    report = json.loads(run('import', src, '--prefix', 't', '--out', tmp_path/'d.jsonl', '--json').output)
    assert report['replies'] == dict(read=1, kept=1, dropped={})
    assert run('sheets', tmp_path/'d.jsonl', '--out', tmp_path/'s', '--asked-in', 'id').exit_code == 0
    assert run('sheets', tmp_path/'d.jsonl', '--out', tmp_path/'s').exit_code == 1
    assert run('check', tmp_path/'d.jsonl', tmp_path/'s').exit_code == 1
    (tmp_path/'people.txt').write_text('\n'.join('abcdefgh'))
    plan = run('plan', tmp_path/'people.txt', '--prefix', 'g', '--quota', 2, 3, '--quota', 3, 1, '--json')
    assert plan.exit_code == 0 and json.loads(plan.output)['check']['groups'] == {'2': 3, '3': 1}
    (tmp_path/'bad.json').write_text('{')
    bad = run('import', tmp_path/'bad.json', '--prefix', 't', '--out', tmp_path/'x.jsonl')
    assert bad.exit_code == 1 and 'not a JSON file' in bad.output and not (tmp_path/'x.jsonl').exists()
