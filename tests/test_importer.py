"The importer: published formats, pairing, and a team's own traffic; on small files of our own, and on the public sets where they are."
import csv, io, json
from collections import Counter
import pytest
from hypothesis import given, strategies as st
from conftest import Toy, even, fast
from polyroute import importer as im
from polyroute.items import DEPARTMENT, DataError, read_items
from polyroute.significance import items_needed, mcnemar_power
from polyroute.systems import UnsupportedQuestion

HERE = bool(im.there('xsid')) and bool(im.there('banking77'))
external = pytest.mark.skipif(not HERE, reason='xSID and Banking77 are not here; name their folder with POLYROUTE_EXTERNAL')


def sentence(text, intent, eol='\n', **comments):
    "A block of a CoNLL file."
    lines = [f'# {k.replace("_", "-")} = {v}' for k, v in (comments | dict(text=text, intent=intent)).items()]
    return eol.join(lines + [f'{n}\t{w}\t{intent}\tO' for n, w in enumerate(text.split(' ') or ['-'], 1)]) + eol


def folder_of(tmp_path, **files):
    "A folder with an xsid folder in it; keys are file names with _ for the dots."
    (tmp_path/'xsid').mkdir(exist_ok=True)
    for name, blocks in files.items():
        eol = '\r\n' if name.startswith('CRLF') else '\n'
        (tmp_path/'xsid'/(name.removeprefix('CRLF').replace('__', '-').replace('_', '.') + '.conll')).write_bytes(eol.join(blocks).encode())
    return tmp_path


ENGLISH = [sentence(t, i) for t, i in (('wake me at six', 'alarm/set_alarm'), ('rain later', 'weather/find'), ('wake me at six', 'alarm/set_alarm'), ('how long still', 'alarm/time_left_on_alarm'))]


# Tables

ROWS = st.lists(st.tuples(st.text(st.characters(blacklist_categories=('Cs',), blacklist_characters='\x00'), min_size=1).filter(lambda t: t.strip()), st.sampled_from(['a', 'b', 'c d'])), min_size=2, max_size=12).filter(lambda r: len({l for _, l in r}) > 1)


@fast
@given(rows=ROWS, delimiter=st.sampled_from(',;\t'), bom=st.booleans(), eol=st.sampled_from(['\n', '\r\n']))
def test_csv_gives_back_what_was_written(tmp_path_factory, rows, delimiter, bom, eol):
    path, out = tmp_path_factory.mktemp('csv')/'f.csv', io.StringIO(newline='')
    w = csv.writer(out, delimiter=delimiter, lineterminator=eol, quoting=csv.QUOTE_ALL)
    w.writerow(['text', 'label']); w.writerows(rows)
    path.write_bytes(b'\xef\xbb\xbf'*bom + out.getvalue().encode())
    got = im.import_file(path)
    assert [(i.state, i.gold) for i in got.data] == rows
    assert len(set(got.data.ids)) == len(rows)
    clusters = dict(zip(got.data.ids, got.data.clusters))
    for a in got.data:
        for b in got.data: assert (clusters[a.id] == clusters[b.id]) == (a.state == b.state)


@fast
@given(rows=ROWS, form=st.sampled_from(['jsonl', 'json']))
def test_json_gives_back_what_was_written(tmp_path_factory, rows, form):
    path = tmp_path_factory.mktemp('json')/f'f.{form}'
    objects = [dict(utterance=t, intent=l) for t, l in rows]
    path.write_text(json.dumps(objects) if form == 'json' else '\n'.join(map(json.dumps, objects)), encoding='utf-8')
    assert [(i.state, i.gold) for i in im.import_file(path).data] == rows


def test_parquet(tmp_path):
    pa = pytest.importorskip('pyarrow')
    import pyarrow.parquet as pq
    pq.write_table(pa.table(dict(body=['x', None, 'z', 'y'], queue=['a', 'a', None, 'b'], lang=['de', 'de', 'en', 'en'])), tmp_path/'t.parquet')
    got = im.import_file(tmp_path/'t.parquet', text='body', label='queue', language='lang')
    assert got.data.states == ['x', 'y'] and list(got.data.field('language')) == ['de', 'en']
    assert [(d['line'], d['why']) for d in got.report['dropped']] == [(2, 'no text'), (3, 'no label')]
    (tmp_path/'bad.parquet').write_bytes(b'PAR1 not')
    with pytest.raises(DataError, match='no Parquet'): im.import_file(tmp_path/'bad.parquet')


@pytest.mark.parametrize('content, line, says', [
    ('text,label\nfine,a\none,two,three\n', 3, '3 cells, but there are 2 columns'),
    ('body,tag\nx,a\n', None, r'no column has a usual name for the text \(text, utt.*the columns are body, tag. Name the right one with --text'),
    ('text,tag\nx,a\n', None, 'usual name for the label .*--label'),
    ('text,label, text\nx,a,y\n', 1, "the column 'text' stands twice"),
    ('text,label\n"open,a\n', None, 'no proper CSV'),
    ('text,label\nx,a\ny,a\n', None, 'at least two labels'),
    ('text,label\n', None, 'no rows')])
def test_faults_of_a_table_are_named(tmp_path, content, line, says):
    (tmp_path/'f.csv').write_text(content)
    with pytest.raises(DataError, match=says) as e: im.import_file(tmp_path/'f.csv')
    assert line is None or e.value.line == line


def test_other_encodings_and_endings_are_refused(tmp_path):
    (tmp_path/'f.csv').write_bytes('text,label\nStraße,a\n'.encode('latin-1'))
    with pytest.raises(DataError, match='UTF-8') as e: im.import_file(tmp_path/'f.csv')
    assert e.value.line == 2
    (tmp_path/'f.xlsx').write_bytes(b'')
    with pytest.raises(DataError, match='.csv'): im.import_file(tmp_path/'f.xlsx')
    with pytest.raises(DataError, match='no such file'): im.import_file(tmp_path/'none.csv')


def test_ids_that_stand_twice_and_texts_with_two_labels(tmp_path):
    (tmp_path/'f.csv').write_text('id,text,label\n7,same,a\n7,same,b\n7+2,other,a\n,more,b\n')
    got = im.import_file(tmp_path/'f.csv', id='id')
    assert list(got.data.ids) == ['7', '7+3', '7+2', 'f-00004'] and got.report['repeated_ids'] == ['7']
    assert got.report['contradictions'] == [['7', '7+3']] and got.report['repeated_texts'] == 1
    assert got.data.clusters[0] == got.data.clusters[1]


def test_labels_of_other_files_are_options(tmp_path):
    (tmp_path/'test.csv').write_text('text,label\nx,a\ny,c\n')
    (tmp_path/'train.csv').write_text('text,label\nz,b\n')
    (tmp_path/'lines.json').write_text('{"a": "the first"}')
    got = im.import_file(tmp_path/'test.csv', others=[tmp_path/'train.csv'], descriptions=tmp_path/'lines.json')
    assert got.data.question.criteria == (('a', 'the first'), ('b', ''), ('c', '')) and got.report['unused'] == ['b']
    with pytest.raises(DataError, match='no such label'): im.import_file(tmp_path/'test.csv', descriptions={'q': 'x'})


def test_department_labels_ask_the_benchmarks_question(tmp_path):
    (tmp_path/'t.csv').write_text('message,department\nx,billing\ny,other\n')
    assert im.import_file(tmp_path/'t.csv').data.question == DEPARTMENT


# Published formats, in small files of our own

def test_massive(tmp_path):
    rows = [dict(id='3', locale='de-DE', partition='test', scenario='alarm', intent='alarm_set', utt='weck mich', annot_utt='x', worker_id='1'),
            dict(id='4', locale='de-DE', partition='train', scenario='alarm', intent='alarm_set', utt='nicht dieser', annot_utt='x', worker_id='1')]
    (tmp_path/'de-DE.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    got = im.import_file(tmp_path/'de-DE.jsonl', 'massive')
    assert [(i.id, i.gold, i.meta['language'], i.meta['cluster']) for i in got.data] == [('3', 'alarm_set', 'de', 'massive-3')] and got.report['left_out'] == 1
    assert len(got.data.question.options) == 60 and all(got.data.question.descriptions)


def test_minds14_numbers_are_its_own_list(tmp_path):
    (tmp_path/'fr-FR.csv').write_text('path,transcription,english_transcription,intent_class,lang_id\na.wav,bonjour la carte,hello the card,6,4\nb.wav,payer,pay,13,4\n')
    assert [i.gold for i in im.import_file(tmp_path/'fr-FR.csv', 'minds14').data] == ['card_issues', 'pay_bill']
    (tmp_path/'bad.csv').write_text('transcription,intent_class\nx,14\n')
    with pytest.raises(DataError, match='not among the 14') as e: im.import_file(tmp_path/'bad.csv', 'minds14')
    assert e.value.line == 2


def test_hint3_out_of_scope_is_an_option(tmp_path):
    (tmp_path/'bot_test.csv').write_text('sentence,label\nwhere is it,TRACK\nhm,NO_NODES_DETECTED\n')
    (tmp_path/'bot_train.csv').write_text('sentence,label\nstop,CANCEL\n')
    got = im.import_file(tmp_path/'bot_test.csv', 'hint3', others=[tmp_path/'bot_train.csv'])
    assert got.data.question.options == ('CANCEL', 'NO_NODES_DETECTED', 'TRACK')


def test_banking77_unknown_intent_is_refused(tmp_path):
    (tmp_path/'banking77').mkdir()
    (tmp_path/'banking77'/'test.csv').write_text('text,category\nwhere is my card,card_arrival\n"a, b",Refund_not_showing_up\n')
    got = im.banking77(folder=tmp_path)
    assert got.data.name == 'banking77' and got.data.states == ['where is my card', 'a, b'] and len(got.data.question.options) == 77
    (tmp_path/'banking77'/'test.csv').write_text('text,category\nx,no_such_intent\n')
    with pytest.raises(DataError, match='not among the 77') as e: im.banking77(folder=tmp_path)
    assert e.value.line == 2


@pytest.mark.parametrize('name', list(im.SOURCES))
def test_a_missing_set_says_what_to_download(tmp_path, name):
    with pytest.raises(DataError) as e: im.source_file(name, 'x.csv', tmp_path)
    s = im.SOURCES[name]
    assert all(w in str(e.value) for w in (s.url, s.licence, s.files, 'POLYROUTE_EXTERNAL'))


def test_a_partial_set_names_the_missing_file(tmp_path):
    folder_of(tmp_path, de_test=[sentence('weck mich', 'alarm/set_alarm', text_en='wake me at six')])
    with pytest.raises(DataError, match='en.test.conll'): im.xsid('de', folder=tmp_path)
    with pytest.raises(DataError, match='en.test.conll'): im.import_file(tmp_path/'xsid'/'de.test.conll', 'xsid')


# CoNLL

def test_conll_survives_what_files_have(tmp_path):
    blocks = ['\ufeff# text = tea\tfor two\r\n# intent = a\r\n# slots:\r\n# a remark\r\n1\ttea\ta\tO', '# id =\r\n# intent = b\r\n# text = # 5\r\n1\t#\tb\tO\r\n2\t5\tb\tO\r\n', '\t \r\n# text: c\u2028d\r\n# intent: c\r\n1\tc\tc\tO']
    (tmp_path/'f.conll').write_bytes('\r\n\r\n'.join(blocks).encode())
    got = im.read_conll(tmp_path/'f.conll')
    assert [s.comments.get('text') for s in got] == ['tea\tfor two', '# 5', 'c\u2028d'] and [s.comments['intent'] for s in got] == ['a', 'b', 'c']
    assert got[0].comments['slots'] == '' and got[1].comments['id'] == '' and len(got[1].tokens) == 2


@pytest.mark.parametrize('content, line, says', [('# text = a\n# intent = b\nno token\n', 3, 'neither a comment'), ('\n\n', None, 'no sentences')])
def test_conll_faults(tmp_path, content, line, says):
    (tmp_path/'f.conll').write_text(content)
    with pytest.raises(DataError, match=says) as e: im.read_conll(tmp_path/'f.conll')
    assert e.value.line == line


@fast
@given(st.lists(st.sampled_from('abc')), st.lists(st.sampled_from('abcd')))
def test_pairing_is_one_to_one_and_by_occurrence(english, sources):
    got = im.pair(sources, english)
    used = [g for g in got if g is not None]
    assert len(set(used)) == len(used) and all(english[g] == s for g, s in zip(got, sources) if g is not None)
    there, here = Counter(english), Counter(sources)
    assert len(used) == sum(min(there[w], here[w]) for w in here)
    for w in here:
        mine = [g for g, s in zip(got, sources) if s == w]
        assert mine == ([n for n, t in enumerate(english) if t == w] + [None]*len(sources))[:here[w]]


def test_xsid_pairs_in_every_way_its_files_need(tmp_path):
    folder_of(tmp_path, CRLFen_test=[b.replace('\n', '\r\n') for b in ENGLISH],
              de__ba_test=[sentence('Zwo', 'weather/find', text_en='rain  later'), sentence('Oans', 'alarm/set_alarm', text_en='wake me at six'), sentence('Oans', 'alarm/set_alarm', text_en='wake me at six'), sentence('X', 'weather/find', text_en='not there')],
              lt_test=[sentence('a', 'alarm/set_alarm', id=9, text_en='wake me at six'), sentence('b', 'weather/find', id=9, text_en='rain later')],
              ar_test=[sentence('ا', 'alarm/show_alarms', id=1, text_en='wake me at six')],
              no_test=[sentence(f'{t} {v}', i, id=f'{n}/{v}', dialect=d) for n, t, i in ((3, 'vekk', 'alarm/set_alarm'), (2, 'regn', 'weather/find')) for v, d in (('B', 'B'), ('1', 'N'))])
    get = lambda c: im.xsid(c, folder=tmp_path)
    en, ba, lt, ar, no = map(get, ('en', 'de-ba', 'lt', 'ar', 'no'))
    assert [i.meta['cluster'] for i in en.data] == ['xsid-test-0001', 'xsid-test-0002', 'xsid-test-0001', 'xsid-test-0004']
    assert [i.meta.get('pair') for i in ba.data] == ['xsid-en-test-0002', 'xsid-en-test-0001', 'xsid-en-test-0003', None]
    assert ba.report['unpaired'] == ['xsid-de-ba-test-0004'] and ba.report['moved'] == 2 and ba.data.clusters[3] == 'xsid-de-ba-test-0004'
    assert lt.report['file_ids_repeated'] == 1 and len(set(lt.data.ids)) == 2
    assert ar.report['other_intent'] == ['xsid-ar-test-0001']
    assert [i.id for i in no.data] == ['xsid-no-test-0003-B', 'xsid-no-test-0003-1', 'xsid-no-test-0002-B', 'xsid-no-test-0002-1']
    assert list(no.data.clusters) == ['xsid-test-0001', 'xsid-test-0001', 'xsid-test-0002', 'xsid-test-0002'] and list(no.data.field('dialect')) == ['B', 'N', 'B', 'N']
    assert en.data.question.options == ba.data.question.options and len(en.data.question.options) == 16
    assert [i.gold for i in en.data][3] == 'alarm/time_left_on_alarm'        # an intent that only a test file has


def test_xsid_faults(tmp_path):
    folder_of(tmp_path, en_test=ENGLISH, no_test=[sentence('a', 'weather/find', id='5/1')], de_test=['# text = a\n1\ta\tx\tO\n'], gsw_test=[sentence('', 'weather/find', text_en='rain later'), sentence('Räge', 'weather/find', text_en='rain later')])
    with pytest.raises(DataError, match='1 to 4 before the slash'): im.xsid('no', folder=tmp_path)
    with pytest.raises(DataError, match='# intent'): im.xsid('de', folder=tmp_path)
    with pytest.raises(DataError, match='it has en, de'): im.xsid('xx', folder=tmp_path)
    empty = im.xsid('gsw', folder=tmp_path)
    assert len(empty.data) == 1 and [d['why'] for d in empty.report['dropped']] == ['no text']
    with pytest.raises(DataError, match='not among the 16'): im.import_file(folder_of(tmp_path, it_test=[sentence('a', 'dance', text_en='rain later')])/'xsid'/'it.test.conll', 'xsid')


def test_the_digest_is_that_of_the_written_file(tmp_path):
    from polyroute.items import write_jsonl
    folder_of(tmp_path, en_test=ENGLISH)
    d = im.xsid('en', folder=tmp_path).data
    assert read_items(write_jsonl(tmp_path/'x.jsonl', (i.to_row() for i in d))).sha256 == d.sha256


# The public sets themselves

@external
def test_xsid_as_published():
    got = {c: im.xsid(c) for c in im.XSID}
    assert {c: len(g.data) for c, g in got.items() if len(g.data) != 500} == dict(ja=250, no=5500)
    assert got['en'].report['repeated_texts'] == 49 and len(got['ar'].report['other_intent']) == 26
    assert {c: len(set(g.data.clusters)) for c, g in got.items() if c not in ('ja', 'de-ba')} == {c: 451 for c in got if c not in ('ja', 'de-ba')}
    assert {c for c, g in got.items() if g.report['unpaired']} == {'de-ba'} and got['de-ba'].report['moved'] > 300 and got['lt'].report['file_ids_repeated'] > 200
    assert set(Counter(i.meta['pair'] for i in got['no'].data).values()) == {11}
    seen = {i.gold for g in got.values() for i in g.data} | {i.gold for i in im.xsid('en', 'valid').data}
    assert seen == set(im.intents('xsid').options)


@external
def test_banking77_as_published():
    test = im.banking77()
    assert len(test.data) == 3080 and not test.report['dropped'] and set(Counter(test.data.field('gold')).values()) == {40}
    assert json.loads(im.source_file('banking77', 'categories.json').read_text()) == list(test.data.question.options)


# A team's own traffic

@pytest.mark.parametrize('have, difference', [(30, .1), (300, .08), (600, .1)])
def test_the_plan_is_what_the_test_needs(have, difference):
    p, = im.power_plan(have, difference, dict(x=.1))
    assert p.needed == items_needed(difference, .1) and p.more == max(0, p.needed - have)
    if p.resolvable == p.resolvable: assert mcnemar_power(have, .1, p.resolvable) >= .8 - 1e-6 > mcnemar_power(have, .1, p.resolvable*.98)


def test_systems_that_disagree_too_little_cannot_differ_by_that_much():
    p, = im.power_plan(100, .05, {'a, b': .02})
    assert p.needed is None and p.more is None and im.plan_rows([p])[0]['More'] == '–'


def refuse(texts, question): raise UnsupportedQuestion('no')


def test_traffic_report_holds_numbers_and_no_text(tmp_path):
    lines = ''.join(f'"secret sentence number {n}",{"abc"[n % 3]},{("de", "tr")[n % 2]}\n' for n in range(24))
    (tmp_path/'mine.csv').write_text('text,label,lang\n' + lines + '"secret sentence number 0",a,de\n')
    got = im.import_file(tmp_path/'mine.csv', language='lang')
    tried = im.try_systems(got.data, [Toy('one'), Toy('two', predict=lambda t, q: even([x + '!' for x in t], q)), Toy('three', predict=refuse)], tmp_path/'out')
    r = im.traffic_report(got, tried, .2)
    assert r['not asked'] == {'three': 'cannot answer this question'} and [s['sources'] for s in r['systems']] == [24, 24] and len(r['comparisons']) == 1
    assert sum(l['items'] for l in r['by language']) == 2*25 and r['plan'][0].have == 24 and r['plan'][0].discordance == pytest.approx(sum(a != b for a, b in zip(*(p.hit for p in tried.predictions)))/25)
    text = im.traffic_text(r)
    assert 'secret' not in text and '25 items from 25 rows' in text and 'one' in text
    files = im.write_traffic(got, tmp_path/'folder', r)
    assert 'secret' not in files[1].read_text() and json.loads(files[1].read_text())['import']['repeated_texts'] == 1


def test_leakage_names_what_stands_in_the_training_rows(tmp_path):
    from polyroute.items import load
    row = load('train_ml')[5].state
    (tmp_path/'t.jsonl').write_text('\n'.join(json.dumps(dict(text=t, label=l), ensure_ascii=False) for t, l in ((row, 'a'), ('zqx jkv wpf', 'b'))), encoding='utf-8')
    got = im.import_file(tmp_path/'t.jsonl')
    found, = im.leaks(got.data)
    assert found['exact'] == 1 and found['ids'] == ['t-00001']


# CLI

def test_cli_import(tmp_path, monkeypatch):
    from click.testing import CliRunner
    from polyroute.cli import main
    monkeypatch.chdir(tmp_path)
    (tmp_path/'t.csv').write_text('text,label\n' + ''.join(f'message {n},{"ab"[n % 2]}\n' for n in range(10)))
    got = CliRunner().invoke(main, ['import', 't.csv', '--no-systems', '--difference', '20', '--json'])
    assert got.exit_code == 0, got.output
    assert json.loads(got.stdout)['import']['items'] == 10 and len(read_items(tmp_path/'t'/'t.jsonl')) == 10 and (tmp_path/'t'/'report.md').is_file()
    bad = CliRunner().invoke(main, ['import', 't.csv', '--text', 'nowhere', '--no-systems'])
    assert bad.exit_code == 1 and 'the columns are text, label' in bad.output

@pytest.mark.parametrize('name', ['language', 'lang', 'locale'])
def test_a_language_column_is_found_by_its_usual_name(tmp_path, name):
    (f := tmp_path/'t.csv').write_text(f'text,label,{name}\na,x,de-CH\nb,y,\n', encoding='utf-8')
    assert [r.meta.get('language') for r in im.import_file(f).data] == ['de', None]

# Columns, names and cells that would be lost or mixed up without a word

@pytest.mark.parametrize('what', ['text', 'label', 'id', 'cluster', 'language'])
@pytest.mark.parametrize('preset', ['table', 'massive'])
def test_a_column_that_was_named_has_to_be_there(tmp_path, what, preset):
    (tmp_path/'t.csv').write_text('text,label,utt,intent\na,x,a,x\nb,y,b,y\n')
    with pytest.raises(DataError, match=f"there is no column 'nosuch'; the columns are text, label, utt, intent. Name the right one with --{what}"): im.import_file(tmp_path/'t.csv', preset, **{what: 'nosuch'})

def test_the_columns_are_those_of_all_rows(tmp_path):
    rows = [dict(text='a', label='x'), dict(text='b', label='y', language='ta', key=7), dict(text='c', label='x', language=None, key=None)]
    (tmp_path/'t.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    got = im.import_file(tmp_path/'t.jsonl', id='key')
    assert list(got.data.field('language')) == ['', 'ta', ''] and list(got.data.ids) == ['t-00001', '7', 't-00003']

def test_a_missing_number_is_nothing(tmp_path):
    (tmp_path/'t.jsonl').write_text('{"text": "a", "label": "x", "language": NaN, "id": NaN, "source": NaN}\n{"text": "b", "label": "y", "language": "de", "id": "i", "source": "s"}\n{"text": NaN, "label": "y"}\n{"text": "d", "label": NaN}\n')
    got = im.import_file(tmp_path/'t.jsonl', id='id', cluster='source')
    assert list(got.data.field('language')) == ['', 'de'] and list(got.data.ids) == ['t-00001', 'i'] and list(got.data.clusters) == ['t-00001', 's']
    assert [(d['line'], d['why']) for d in got.report['dropped']] == [(3, 'no text'), (4, 'no label')]

def test_one_language_is_one_group(tmp_path):
    (tmp_path/'t.csv').write_text('text,label,lang\n' + ''.join(f'text {n},{"xy"[n % 2]},{l}\n' for n, l in enumerate(['pt_BR', 'pt-BR', 'PT', 'pt', 'zh-Hant', 'ZH', ' de ', ''])))
    got = im.import_file(tmp_path/'t.csv')
    assert {l: list(ix) for l, ix in got.data.groups('language').items()} == {'de': [6], 'pt': [0, 1, 2, 3], 'zh': [4, 5]}
    assert list(got.data.field('locale'))[:5] == ['pt_BR', 'pt-BR', '', '', 'zh-Hant'] and got.report['regions'] == {'pt': ['pt-BR', 'pt_BR'], 'zh': ['zh-Hant']}
    assert 'Regions and scripts are not told apart: pt holds pt-BR, pt_BR; zh holds zh-Hant.' in im.traffic_text(im.traffic_report(got, difference=.5))

@pytest.mark.parametrize('label, kind', [(['a'], 'list'), ({'a': 1}, 'dict'), (True, 'bool'), (1.5, 'float')])
def test_a_label_is_a_string(tmp_path, label, kind):
    (tmp_path/'t.jsonl').write_text('\n'.join(json.dumps(dict(text='t', label=l)) for l in ('a', 3, 4.0, label)))
    with pytest.raises(DataError, match=f'the label is of type {kind}; a string is expected') as e: im.import_file(tmp_path/'t.jsonl')
    assert e.value.line == 4
    (tmp_path/'t.jsonl').write_text('\n'.join(json.dumps(dict(text='t', label=l)) for l in ('a', 3, 4.0)))
    assert im.import_file(tmp_path/'t.jsonl').data.question.options == ('3', '4', 'a')

@pytest.mark.parametrize('column', ['text', 'label', 'language', 'key', 'source'])
def test_half_a_surrogate_pair_is_named_before_anything_runs(tmp_path, column):
    row = dict(text='t', label='a', language='de', key='k', source='s')
    (tmp_path/'t.jsonl').write_text('\n'.join(map(json.dumps, (row, row | dict(label='b'), row | {column: 'x\ud83d'}))))
    with pytest.raises(DataError, match='half of a surrogate pair') as e: im.import_file(tmp_path/'t.jsonl', id='key', cluster='source')
    assert e.value.line == 3

def test_half_a_surrogate_pair_in_the_question(tmp_path):
    (tmp_path/'t.csv').write_text('text,label\nx,a\ny,b\n')
    for more in (dict(descriptions={'a': 'x\ud83d'}), dict(instructions='what\ud83d')):
        with pytest.raises(DataError, match='half of a surrogate pair'): im.import_file(tmp_path/'t.csv', **more)

def test_a_long_text_is_a_text(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path/'t.csv').write_text('text,label\n"' + 'long '*30_000 + '",a\ny,b\n')
    assert len(im.import_file(tmp_path/'t.csv').data.states[0]) == 150_000 and csv.field_size_limit() == limit

@pytest.mark.parametrize('name', ['../../esc', 'a/b', '/etc/x', '..', '.hidden', 'a b', 'a\\b', 'a\x00', 'x\udce4'])
def test_a_name_stays_in_its_folder(tmp_path, name):
    (tmp_path/'t.csv').write_text('text,label\nx,a\ny,b\n')
    with pytest.raises(DataError, match='no name of a data set: letters, digits, hyphen, underscore and dot'): im.import_file(tmp_path/'t.csv', name=name)
    for fine in ('a-b_c.1', 'Ünï', 'தமிழ்'): assert im.import_file(tmp_path/'t.csv', name=fine).data.name == fine

@pytest.mark.parametrize('file, name', [('my.v1.csv', 'my.v1'), ('my.v2.csv', 'my.v2'), ('two words (1).csv', 'two_words__1_'), ('हिन्दी.csv', 'हिन्दी')])
def test_names_of_files(tmp_path, file, name):
    (tmp_path/file).write_text('text,label\nx,a\ny,b\n')
    assert im.import_file(tmp_path/file).data.name == name

def test_the_import_of_another_file_is_not_replaced(tmp_path, monkeypatch):
    from conftest import run_command as run
    monkeypatch.chdir(tmp_path)
    rows = lambda n: 'text,label\n' + ''.join(f'message {i},{"ab"[i % 2]}\n' for i in range(n))
    for f, n in (('my.v1.csv', 6), ('my.v2.csv', 8)):
        (tmp_path/f).write_text(rows(n))
        run('import', f, '--no-systems')
    assert [len(read_items(tmp_path/n/f'{n}.jsonl')) for n in ('my.v1', 'my.v2')] == [6, 8]
    before = (tmp_path/'my.v1'/'report.json').read_bytes()
    assert 'belongs to other data' in run('import', 'my.v2.csv', '--no-systems', '--out', 'my.v1', code=1) and (tmp_path/'my.v1'/'report.json').read_bytes() == before
    run('import', 'my.v1.csv', '--no-systems', '--difference', '20')                                    # the same bytes again
    assert (tmp_path/'my.v1'/'report.json').read_bytes() != before
    (tmp_path/'my.v1.csv').write_text(rows(10))
    assert 'my.v1/report.json: this belongs to other data' in run('import', 'my.v1.csv', code=1)         # before systems run
    for text in ('', '[]'):
        (tmp_path/'my.v2'/'report.json').write_text(text)
        assert 'my.v2/report.json: the file is damaged' in run('import', 'my.v2.csv', '--no-systems', code=1)

def test_the_file_itself_is_not_replaced(tmp_path, monkeypatch):
    from conftest import run_command as run
    monkeypatch.chdir(tmp_path)
    (tmp_path/'t.jsonl').write_text(text := '{"text": "x", "label": "a"}\n{"text": "y", "label": "b"}\n')
    assert 't.jsonl: this belongs to other data' in run('import', 't.jsonl', '--no-systems', '--out', '.', code=1) and (tmp_path/'t.jsonl').read_text() == text

def test_xsid_says_its_own_columns(tmp_path):
    folder_of(tmp_path, en_test=ENGLISH)
    with pytest.raises(DataError, match='says itself'): im.import_file(tmp_path/'xsid'/'en.test.conll', 'xsid', id='no')
