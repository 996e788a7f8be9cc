"""A local server that speaks the OpenAI chat wire format and misbehaves on command; it counts what it would have charged for.

    with Server(fault=lambda body, n: '429:1' if n == 0 else None) as s: OpenAI(base_url=s.url, …)

`answer(body)` is the model: it returns the text of a completion. `fault(body, n)` names what goes wrong at the n-th try (from 0) of a request: None or one of
  '429', '429:SECONDS', '429:date', 'quota', '500', '503', '504', '401', '404', '400'    refused (504: the model ran, the gateway gave up)
  'cut'       the model ran; the connection closes in the middle of the body although Content-Length promised more
  'cut-chunk' the same in a chunked body
  'not-json'  the model ran; a complete body that is not JSON
  'no-choices' the model ran; JSON without an answer in it
  'slow:SECONDS' the model ran; the answer comes late
  'text:…'    the model answers this text
A model run is charged once per Idempotency-Key if `idempotent`, else every time.
"""
import json, re, threading, time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sorter(body):
    "Write texts that carry their department, or read it off numbered texts: a model that makes no mistakes."
    prompt = body['messages'][-1]['content']
    if shown := re.findall(r'^\d+\. (".*")$', prompt, re.M):
        return json.dumps([json.loads(s).split(':')[0] for s in shown])
    if 'Write ' not in prompt: return 'Hello.'
    k, option = re.search(r'Write (\d+) different', prompt)[1], re.search(r'right answer is (\w+) ', prompt)[1]
    style, seed = re.search(r'Write every message (.*)', prompt)[1], re.search(r'Variation seed (\w+)', prompt)[1]
    return json.dumps([f'{option}: {style[:24]} {seed} {i}' for i in range(int(k))])


class Server:
    "The server, on a free port of the loopback interface while the `with` block lasts."
    def __init__(self, answer=sorter, fault=lambda body, n: None, idempotent=False):
        self.answer, self.fault, self.idempotent = answer, fault, idempotent
        self.tries, self.paid, self.stored = Counter(), Counter(), {}   # by the request's Idempotency-Key
        self.times, self.bodies, self.auth = [], [], set()
        self.flying = self.most_flying = 0
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(('127.0.0.1', 0), type('Handler', (_Handler,), {'server_': self}))
        self.http.daemon_threads = True
        self.url = f'http://127.0.0.1:{self.http.server_address[1]}/v1'

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, args=(.02,), daemon=True).start()
        return self

    def __exit__(self, *_): self.http.shutdown(); self.http.server_close()

    def complete(self, key, body, text=None):
        "Run the model, or hand out the stored answer of the same key."
        with self.lock:
            if not (self.idempotent and key in self.stored):
                self.paid[key] += 1
                text = self.answer(body) if text is None else text
                self.stored[key] = {'id': f'chatcmpl-{key[:8]}', 'object': 'chat.completion', 'created': 0, 'model': body['model'],
                                    'choices': [{'index': 0, 'message': {'role': 'assistant', 'content': text}, 'finish_reason': 'stop'}],
                                    'usage': {'prompt_tokens': 50, 'completion_tokens': 50, 'total_tokens': 100}}
            return self.stored[key]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    def log_message(self, *_): pass

    def do_POST(self):
        s = self.server_
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        key = self.headers['Idempotency-Key'] or json.dumps(body, sort_keys=True)
        with s.lock:
            n = s.tries[key]; s.tries[key] += 1
            s.times.append(time.monotonic()); s.bodies.append(body); s.auth.add(self.headers['Authorization'])
            s.flying += 1; s.most_flying = max(s.most_flying, s.flying)
        try: self.act(s, key, body, s.fault(body, n) or '')
        except (BrokenPipeError, ConnectionResetError): pass   # the client is gone
        finally:
            with s.lock: s.flying -= 1

    def act(self, s, key, body, fault):
        kind, _, arg = fault.partition(':')
        if kind == '504': s.complete(key, body)
        if kind.isdigit() or kind == 'quota':
            headers = {'Retry-After': formatdate(time.time() + 1.5, usegmt=True) if arg == 'date' else arg} if arg else {}
            error = {'message': f'no: {self.headers["Authorization"]}', 'type': 'error', 'code': 'insufficient_quota' if kind == 'quota' else kind}
            return self.send(429 if kind == 'quota' else int(kind), {'error': error}, headers)
        answer = s.complete(key, body, arg if kind == 'text' else None)
        if kind == 'slow': time.sleep(float(arg))
        if kind == 'not-json': return self.send(200, b'<html>' + json.dumps(answer).encode()[:80])
        if kind == 'no-choices': return self.send(200, {'object': 'error', 'message': 'overloaded'})
        if kind == 'cut':
            data = json.dumps(answer).encode()
            self.send_response(200); self.send_header('Content-Type', 'application/json'); self.send_header('Content-Length', str(len(data))); self.end_headers()
            self.wfile.write(data[:len(data)//2]); self.wfile.flush(); self.close_connection = True; return
        if kind == 'cut-chunk':
            data = json.dumps(answer).encode()[:60]
            self.send_response(200); self.send_header('Content-Type', 'application/json'); self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
            self.wfile.write(b'%x\r\n' % len(data) + data + b'\r\n'); self.wfile.flush(); self.close_connection = True; return
        self.send(200, answer)

    def send(self, status, content, headers={}):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for k, v in {'Content-Type': 'application/json', 'Content-Length': str(len(data)), **headers}.items(): self.send_header(k, v)
        self.end_headers(); self.wfile.write(data)
