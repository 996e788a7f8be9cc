"""A local engine behind POST /v1/systemone that misbehaves on command; the faults are those of tests/openai_server.py, and as 'text:WHAT' answers that are complete but wrong.

  'text:names' the probabilities stand under other names    'text:missing' there are none, only a confidence    'text:sum' they sum to 0.9    'text:empty' no answers
  'text:type'  another type of question                     'text:label'   a choice without probabilities       'text:list' a bare list       'text:lacks' one question is left out
"""
import json
from conftest import even
from openai_server import Server
from polyroute.items import Question


def decide(state, q):
    "Probabilities in the question's order, rounded as servers do."
    return even([state], q)[0].round(4).tolist()


def answer_to(state, q, wrong=None):
    p = dict(zip(q.options, decide(state, q)))
    a = {'type': q.type, 'confidence': .0001, 'x_jev_confidence': 1.} | ({'noul': p['true']} if q.type == 'noul' else {'choice': max(p, key=p.get), 'probabilities': p})
    if wrong == 'names': a['probabilities'] = {o.upper() + '!': v for o, v in p.items()}
    if wrong in ('missing', 'label'): a.pop('probabilities', 0); a.pop('noul', 0)
    if wrong == 'sum': a['probabilities'] = {o: .9*v for o, v in p.items()}
    if wrong == 'type': a['type'] = 'score' if q.type != 'score' else 'noul'
    if wrong == 'list': a['probabilities'] = list(p.values())
    return a


class Engine(Server):
    def complete(self, key, body, text=None):
        with self.lock: self.paid[key] += 1
        answers = {n: answer_to(body['state'], Question.from_json(n, q), text) for n, q in body['questions'].items()}
        if text == 'lacks': answers.popitem()
        return {'model': body.get('model', ''), 'answers': {} if text == 'empty' else answers, 'usage': {'input_tokens': 10*len(answers), 'output_tokens': len(answers), 'cost': 'free'}, 'routing': {'model': 'x'}}

    @property
    def base(self): return self.url.removesuffix('/v1')


if __name__ == '__main__':        # python systemone_server.py: hold a server until the input closes
    import sys
    with Engine() as s: print(s.url, flush=True); sys.stdin.read()
