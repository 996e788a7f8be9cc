"The generator of mixed texts: requests, parser, checks, romanisation, and the path without a model."
import json, re
import pytest
from hypothesis import given, strategies as st
from conftest import fast, few, lines_of, run_command, tree
from polyroute import romcom as r, romcom_generation as g
from polyroute.generation import Log, Replay
from polyroute.items import DataError, DEPARTMENT, data_dir, load, write_jsonl
from polyroute.romcom import Substitution as S

BASES = r.rows(language='en')
LEXICONS = {c: g.read_lexicon(language=c) for c in r.LANGUAGES}

# requests

def test_requests_carry_the_taxonomy_of_the_reported_data():
    job = g.Job(g.source_of(BASES[0]), 'ta', 25)
    text = g.mix_request(job).messages[1]['content']
    assert 'the active categories are C;' in text and 'Tamil' in text and 'Keep each pair' in text
    assert 'the active categories are B, C, D;' in g.mix_request(job._replace(level=50)).messages[1]['content']
    assert 'leave words of' not in g.mix_request(job._replace(level=75)).messages[1]['content']
    assert g.mix_request(job).key != g.mix_request(job, attempt=1).key and g.mix_request(job).key == g.mix_request(job).key

def test_the_toxic_prompt_is_never_sent_to_be_mixed():
    b = next(x for x in BASES if x.task == 'toxicity')
    text = g.mix_request(g.Job(g.source_of(b), 'hi', 75)).messages[1]['content']
    assert b.input['prompt'] not in text and json.dumps(b.explanation, ensure_ascii=False) in text

# parser

KEYS = ['premise', 'hypothesis']
BODY = {'premise': 'Aaj baarish hai.', 'hypothesis': 'It is geela.'}
LOG = '[Today → Aaj | CAT-A: time]; [wet -> geela | d]; [Pune → Pune | CAT-0: name] || CMI_premise=0.5 CMI_hypothesis=25%'

@pytest.mark.parametrize('wrap', ['{}\n{}', '```json\n{}\n```\n{}', 'Of course! Here it is:\n{}\nand the log\n{}\nDone.', '<think>{{"a": 1}}</think>{}{}'])
def test_answers_in_many_dresses(wrap):
    note, wrong = g.parse_annotation(wrap.format(json.dumps(BODY), LOG), KEYS)
    assert note.parts == BODY and note.substitutions == (S('Today', 'Aaj', 'A'), S('wet', 'geela', 'D')) and note.reasons == ('time', '')
    assert note.reported == {'premise': .5, 'hypothesis': .25} and wrong == []

@pytest.mark.parametrize('answer, words', [('', 'no JSON object'), ('I cannot do that.', 'no JSON object'), ('{"premise": "x"}' + LOG, 'hypothesis'), (json.dumps(BODY), 'names no substitution'), (json.dumps(BODY | {'premise': ' '}) + LOG, 'empty'),
                                           ('{"premise": ["x"], "hypothesis": "y"}' + LOG, 'premise'), ('[' * 5000, 'no JSON'), ('{' * 5000, 'no JSON'), ('Aaj baarish hai', 'no JSON object')])
def test_unusable_answers(answer, words):
    note, wrong = g.parse_annotation(answer, KEYS)
    assert note is None and any(words in w for w in wrong)

def test_entries_that_cannot_be_read_are_counted():
    note, wrong = g.parse_annotation(json.dumps(BODY) + LOG + ' [wet → geela | CAT-Z: ?]', KEYS)
    assert len(note.substitutions) == 2 and wrong == ['1 log entries cannot be read']

@pytest.mark.parametrize('source, read', [("'s", "'s"), ('"wet"', 'wet'), ("'wet'", 'wet'), (' wet ', 'wet'), ("dogs'", "dogs'")])
def test_quotation_marks_go_and_apostrophes_stay(source, read):
    note, wrong = g.parse_annotation(json.dumps(BODY) + f'\n[{source} → geela | CAT-C: domain]', KEYS)
    assert [x.source for x in note.substitutions] == [read] and wrong == []

@few
@given(st.text(max_size=80))
def test_no_answer_breaks_the_parser(answer):
    note, wrong = g.parse_annotation(answer, KEYS)
    assert note is not None or wrong

@few
@given(st.sampled_from([x for x in r.rows() if x.level]))
def test_rows_survive_request_and_parser(row):
    note, wrong = g.parse_annotation(g.write_annotation(row), list(g.parts(row)))
    assert wrong == [] and note.substitutions == row.substitutions
    again = g.mixed_row(row.base, row.language, row.level, note.parts, note.substitutions)
    assert (again.id, again.input, again.answer, again.label, again.explanation) == (row.id, row.input, row.answer, row.label, row.explanation)

# checks

GOOD = r.rows('question_decomposition', 'hi', 50)[1]
def spoil(**kw): return r.Row(**{**GOOD.__dict__, **kw})

@pytest.mark.parametrize('row, words', [
    (spoil(answer=tuple(a.replace('#1', '#2') for a in GOOD.answer)), 'answer'), (spoil(answer=GOOD.answer[:-1]), 'answer'), (spoil(answer=tuple(a.replace('Step 1:', 'Charan 1:') for a in GOOD.answer)), 'step1'),
    (spoil(input={'question': GOOD.input['question'].replace('Sunita', 'Anita')}), 'sunita'), (spoil(input={'question': GOOD.input['question'] + ' कृपया'}), 'Latin'), (spoil(substitutions=()), 'nothing is switched'),
    (spoil(substitutions=(S('villages', 'gaon', 'A'),)), 'not active'), (spoil(substitutions=(S('villages', 'nagar', 'C'),)), 'does not stand in the mixed'), (spoil(input={'q': 'x'}), 'needs the fields')])
def test_broken_rows_are_rejected_with_the_reason(row, words):
    out = g.check(GOOD.base, row)
    assert out.row is None and any(words in w for w in out.rejected), out.rejected

def test_a_missed_target_is_flagged_and_not_rejected():
    base = g.english_row(r.Source('x', 'sentiment', {'review': 'The phone and the screen are good but slow and old.'}, label='neutral'))
    row = g.mixed_row(base, 'hi', 50, {'review': 'The phone and the screen are good lekin slow and old.'}, [S('but', 'lekin', 'B')])
    out = g.check(base, row, {'': .8})
    assert out.rejected == () and len(out.flags) == 2 and 'band of 50%' in out.flags[0] and 'counted 0.80' in out.flags[1]

def test_a_toxic_prompt_must_stay():
    x = r.rows('toxicity', 'hi', 75)[1]
    assert g.check(x.base, x).row
    assert 'must stay' in g.check(x.base, r.Row(**{**x.__dict__, 'input': {'prompt': 'kuch aur'}})).rejected[0]

# the run

def test_a_run_resumes_asks_again_and_logs_reasons(tmp_path):
    rows = r.rows('nli', 'hi')[:3]
    texts = {f'mix/{x.id}': g.write_annotation(x) for x in rows}
    bad = texts | {f'mix/{rows[1].id}': texts[f'mix/{rows[1].id}'].replace('CAT-D', 'CAT-E'), f'mix/{rows[1].id}#1': texts[f'mix/{rows[1].id}']}
    jobs = g.jobs_of([g.source_of(rows[0].base)], ['hi'])
    counts = g.run(jobs, Replay(bad), tmp_path/'once')
    assert counts['accepted'] == 2 and counts['rejected'] == 1
    reason, = lines_of(tmp_path/'once'/'rejected.jsonl')
    assert reason['id'] == rows[1].id and 'not active at 50%' in reason['reasons'][0]
    assert g.run(jobs, Replay(bad), tmp_path/'twice', asks=2)['accepted'] == 3
    before = tree(tmp_path/'twice')
    assert g.run(jobs, Replay({}), tmp_path/'twice', asks=2)['accepted'] == 3       # all answers stand in the log
    assert {k: v for k, v in tree(tmp_path/'twice').items() if 'log' not in k} == {k: v for k, v in before.items() if 'log' not in k}
    assert [x['id'] for x in lines_of(tmp_path/'twice'/'rows.jsonl')] == [rows[0].base.id, *(x.id for x in rows)]

def test_translations_are_refined_first():
    s = r.Source('t', 'math', {'question': 'Ravi has 3 pens.'}, {'question': 'रवि के पास 3 कलम'}, answer='3')
    job = g.jobs_of([s], ['hi'], [25])
    answer = {'refine/t/hi': '{"question": "रवि के पास 3 कलम हैं।"}', 'mix/t-hi-25': '{"question": "Ravi has 3 कलम."} [pens → कलम | CAT-C: thing]'}
    out = g.generate(job, Replay(answer))
    assert out.rows[0].input == {'question': 'Ravi has 3 kalam.'} and out.rows[0].substitutions == (S('pens', 'kalam', 'C'),)
    refined, problems = g.refine(job, Replay(answer), Log())
    assert refined[0].translation == {'question': 'रवि के पास 3 कलम हैं।'} and problems == []
    kept, problems = g.refine(job, Replay({'refine/t/hi': '{"question": "रवि के पास कलम हैं।"}'}), Log())
    assert kept[0].translation == s.translation and 'numbers' in problems[0]['problem']

# romanisation

@fast
@given(st.text(alphabet=[chr(c) for lo, hi in ((0x900, 0x97f), (0x980, 0x9ff), (0xa80, 0xaff), (0xb80, 0xbff)) for c in range(lo, hi)] + list(' ab1'), max_size=12), st.sampled_from(list(r.LANGUAGES)))
def test_romanising_ends_and_leaves_latin_alone(text, language):
    assert g.romanise('already Latin #1 <<2+2=4>>', language) == 'already Latin #1 <<2+2=4>>'
    assert isinstance(g.romanise(text, language), str)

@pytest.mark.parametrize('language, native, typed', [('hi', 'बिजली', 'bijli'), ('hi', 'नौकरी', 'naukri'), ('bn', 'জল', 'jol'), ('bn', 'টাকা', 'taka'), ('gu', 'નોકરી', 'nokri'), ('ta', 'பணம்', 'panam'), ('ta', 'கதவு', 'kadhavu')])
def test_words_as_people_type_them(language, native, typed):
    assert g.romanise(native, language) == typed

@fast
@given(st.text(max_size=8), st.text(max_size=8))
def test_edit_distance(a, b):
    d = g.edit_distance(a, b)
    assert d == g.edit_distance(b, a) and abs(len(a) - len(b)) <= d <= max(len(a), len(b)) and (d == 0) == (a == b)

# without a model

WORDS = ['the', 'bill', 'and', 'my', 'paid', 'room', 'I', 'Ravi', '42', '"my bill"', '#1', '<<1+1=2>>', 'IBAN', 'please', 'Bill']

@fast
@given(st.lists(st.sampled_from(WORDS), max_size=14), st.sampled_from(r.LEVELS), st.sampled_from(list(r.LANGUAGES)))
def test_the_word_list_path_keeps_what_must_be_kept(words, level, language):
    text = ' '.join(words)
    mixed, log = g.mix(text, LEXICONS[language], level)
    assert r.markers(mixed) == r.markers(text)
    assert {s.category for s in log} <= set(r.ACTIVE[level])
    assert all(s.source in text and s.target in mixed for s in log)
    back = {s.source.casefold(): s.target for s in LEXICONS[language] if s.category in r.ACTIVE[level]}
    assert all(back[s.source.casefold()].casefold() == s.target.casefold() for s in log)
    if not log: assert mixed == text

@few
@given(st.sampled_from(BASES), st.sampled_from(list(r.LANGUAGES)))
def test_more_intensity_replaces_more(base, language):
    rows = [g.mix_row(base, language, l, LEXICONS[language]) for l in r.LEVELS]
    shares = [r.cmi_replaced(x) for x in rows]
    assert shares == sorted(shares)
    for x in rows:
        out = g.check(base, x)
        assert not out.rejected or out.rejected == ('nothing is switched',), out.rejected

def test_longest_match_and_whole_words():
    lex = [S('pay', 'chukana', 'C'), S('pay back', 'lautana', 'C')]
    assert g.mix('Pay back or pay; payment, re-pay.', lex, 25)[0] == 'Lautana or chukana; payment, re-pay.'

@pytest.mark.parametrize('name, body, words', [('x.tsv', 'source\ttarget\tcategory\nbill\thisaab\tF\n', 'category'), ('x.tsv', 'source\ttarget\tcategory\nbill\t\tC\n', 'target'), ('x.csv', 'source,target,category\nbill,a,C\nBill,b,C\n', 'line 2'), ('x.jsonl', '{"source": "a", "category": "C"}\n', 'target')])
def test_faulty_lists_are_told(tmp_path, name, body, words):
    (tmp_path/name).write_text(body, encoding='utf-8')
    with pytest.raises(DataError, match=words): g.read_lexicon(tmp_path/name)

def test_a_list_in_the_languages_own_script_is_romanised(tmp_path):
    (tmp_path/'x.csv').write_text('source,target,category\nwater,पानी,C\n', encoding='utf-8')
    assert g.read_lexicon(tmp_path/'x.csv') == [S('water', 'pani', 'C')]

def test_the_shipped_list():
    rows = lines_of(data_dir()/'raw'/'romcom'/'lexicon.jsonl')
    assert 150 <= len(rows) and all(x[c].isascii() for x in rows for c in r.LANGUAGES) and {x['category'] for x in rows} == set(r.CATEGORIES)

# PolyRoute's own messages

def test_department_messages(tmp_path):
    data = r.load('department')
    assert g.build_department(tmp_path).read_bytes() == (data_dir()/'romcom'/'department.jsonl').read_bytes()
    gold = {i.id: i.gold for i in load('en_test')}
    assert len(data) == 90*13 and data.question == DEPARTMENT and all(i.gold == gold[i.meta['cluster']] for i in data)
    for c in r.LANGUAGES:
        means = [sum(i.meta['cmi'] for i in r.load('department', c, l))/90 for l in r.LEVELS]
        assert means[0] < means[1] < means[2]

# CLI

def test_cli_build_and_measures(tmp_path):
    assert any(x['file'] == 'romcom/department.jsonl' for x in json.loads(run_command('romcom', 'build', '--out', tmp_path, '--json')))
    assert (tmp_path/'nli.jsonl').read_bytes() == (data_dir()/'romcom'/'nli.jsonl').read_bytes()
    rows = json.loads(run_command('romcom', 'measures', '--by', 'level', '--json'))
    assert [x['level'] for x in rows] == [25, 50, 75] and rows[0]['mean'] < rows[1]['mean'] < rows[2]['mean']

def test_cli_mix(tmp_path):
    assert run_command('romcom', 'mix', 'I paid my bill', '--level', '75') == 'Maine chukaya mera bill ka hisaab\n'
    (tmp_path/'t.txt').write_text('My bill is 3 euros.\n')
    out, = json.loads(run_command('romcom', 'mix', '--file', tmp_path/'t.txt', '--language', 'ta', '--level', '25', '--json'))
    assert out['substitutions'] and '3' in out['mixed'] and 0 < out['replaced'] < 1
    run_command('romcom', 'mix', code=2)

def test_cli_generate(tmp_path):
    out = json.loads(run_command('romcom', 'generate', '--replay', '--limit', 2, '--language', 'hi', '--out', tmp_path, '--json'))
    assert out == dict(jobs=6, accepted=6, rejected=0, flagged=out['flagged'], problems=0)
    said = run_command('romcom', 'generate', '--batch-out', tmp_path/'b.jsonl', '--limit', 1, '--out', tmp_path/'b', code=1)
    assert len(lines_of(tmp_path/'b.jsonl')) == 12 and '12 requests written' in said
    run_command('romcom', 'generate', 'gsm8k', '--replay', '--out', tmp_path, code=2)

def test_cli_study(tmp_path):
    run_command('romcom', 'study', '--form', 'bn', '--out', tmp_path)
    assert '<html' in (tmp_path/'romcom-bn.html').read_text(encoding='utf-8')
    run_command('romcom', 'study', code=2)
