"""A stand-in for GitHub that remembers: a real HTTP server whose every request and answer fits GitHub's description.

tests/data/github/openapi.json is the part of it that is used; `scripts/github-schema` makes it.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT202012

DESCRIPTION = Path(__file__).parent / "data/github/openapi.json"
LONGEST_BODY = 65_536


def translated(node):
    """Turn OpenAPI 3.0, where a schema says `nullable: true`, into JSON Schema."""
    if isinstance(node, list):
        return [translated(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: translated(value) for key, value in node.items()}
    if made.pop("nullable", None) is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made


@cache
def description():
    return translated(json.loads(DESCRIPTION.read_text(encoding="utf-8")))


@cache
def validator(*keys):
    """Return the validator of the schema at this place of the description."""
    pointer = "/".join(key.replace("~", "~0").replace("/", "~1") for key in keys)
    registry = DRAFT202012.create_resource({"$id": "urn:github", **description()}) @ Registry()
    return jsonschema.Draft202012Validator({"$ref": f"urn:github#/{pointer}"}, registry=registry)


def resolved(node):
    while "$ref" in node:
        found = description()
        for key in node["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        node = found
    return node


def sample(schema):
    """Return the smallest value of a schema: what a test does not care about."""
    schema = resolved(schema)
    if "enum" in schema:
        return schema["enum"][0]
    if "allOf" in schema:
        return {key: value for part in schema["allOf"] for key, value in sample(part).items()}
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return None if {"type": "null"} in choices else sample(choices[0])
    if schema.get("type", "object") == "object":
        properties = schema.get("properties", {})
        return {name: sample(properties[name]) for name in schema.get("required", ()) if name in properties}
    formats = {"uri": "https://github.com/octo", "date-time": "2026-11-28T00:00:00Z"}
    text = formats.get(schema.get("format"), "text")
    return {"array": [], "string": text, "integer": 1, "number": 1.0, "boolean": False}[schema["type"]]


def named(name):
    return sample({"$ref": f"#/components/schemas/{name}"})


@dataclass
class Fault:
    """What the next requests of a method are answered in place of the truth."""

    method: str
    status: int
    times: int = 1
    message: str = "Server Error"
    headers: dict = field(default_factory=dict)
    raw: bytes | None = None
    """The body, where it is not GitHub's JSON."""
    path: str = ""
    """Of the requests that are answered so, what their path ends with."""


@dataclass
class Account:
    """Who a token belongs to."""

    login: str = "github-actions[bot]"
    kind: str = "Bot"
    writes: bool = True


class FakeGitHub:
    """Pull requests and their comments; `with FakeGitHub() as github` serves them at `github.url`."""

    def __init__(self, prefix=""):
        self.prefix = prefix
        """Of every path: `/api/v3` on GitHub Enterprise."""
        self.accounts = {"ghs_secret": Account()}
        self.pulls, self.comments, self.faults = {}, {}, []
        self.requests, self.problems = [], []
        self.lag = False
        """Whether its lists of comments are older than what was just written."""
        self.before = lambda *_: None
        """Called before each request is answered: a test may hold it here."""
        self._lock, self._next = threading.Lock(), 100

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = self.root + self.prefix
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()
        if not any(error):
            assert self.problems == []

    def open_pull(self, number, sha, *, head="octo/kernels", branch="feature", base="octo/kernels", state="open"):
        """Add a pull request."""
        pull = named("pull-request")
        pull |= {"number": number, "state": state, "issue_url": f"{self.url}/repos/{base}/issues/{number}"}
        pull |= {"url": f"{self.url}/repos/{base}/pulls/{number}"}
        for side, name, ref in (("head", head, branch), ("base", base, "main")):
            owner = {**named("simple-user"), "login": name.split("/")[0]}
            repo = {**named("repository"), "full_name": name, "name": name.split("/")[1], "owner": owner}
            pull[side] = {**pull[side], "ref": ref, "sha": sha if side == "head" else "b" * 40, "repo": repo}
            pull[side]["label"] = f"{name.split('/')[0]}:{ref}"
        self.pulls[base, number] = pull

    def say(self, number, body, *, login="github-actions[bot]", kind="Bot", repository="octo/kernels"):
        """Add a comment of anybody; return it."""
        with self._lock:
            self._next += 1
            user = {**named("simple-user"), "login": login, "type": kind}
            api = f"{self.url}/repos/{repository}/issues"
            comment = {**named("issue-comment"), "id": self._next, "body": body, "user": user}
            comment |= {"url": f"{api}/comments/{self._next}", "issue_url": f"{api}/{number}"}
            comment |= {"html_url": f"https://github.com/{repository}/pull/{number}#issuecomment-{self._next}"}
            self.comments[self._next] = (repository, number, comment)
        return comment

    def bodies(self, number, repository="octo/kernels"):
        """Return what is written on a pull request, in the order of ids."""
        return [c["body"] for _, (r, n, c) in sorted(self.comments.items()) if (r, n) == (repository, number)]

    def answer(self, method, target, headers, content):
        """Return the status, headers and document for a request."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.requests.append((method, target))
        self.before(method, path)
        fault = next(
            (f for f in self.faults if f.method == method and f.times > 0 and path.endswith(f.path)),
            None,
        )
        if fault:
            fault.times -= 1
            return (
                fault.status,
                fault.headers,
                fault.raw
                if fault.raw is not None
                else {"message": fault.message, "documentation_url": "https://docs.github.com"},
            )
        account = self.accounts.get(headers.get("Authorization", "").removeprefix("token "))
        if account is None:
            return 401, {}, error("Bad credentials")
        if path == self.prefix.removesuffix("/v3") + "/graphql":
            return 200, {}, {"data": {"viewer": {"login": account.login}}}
        if not path.startswith(f"{self.prefix}/repos/"):
            return 404, {}, error("Not Found")
        return self._described(method, path.removeprefix(self.prefix), query, content, account)

    def _described(self, method, path, query, content, account):
        """Answer a request, and validate request and answer against the description."""
        template = next((t for t in description()["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", t), path)), None)
        operation = description()["paths"].get(template, {}).get(method.lower())
        if operation is None:
            self.problems.append(f"{method} {path}: GitHub has no such operation, or the extract lacks it")
            return 404, {}, error("Not Found")
        where = f"{method} {template}"
        self._check_query(where, operation, query)
        if "requestBody" in operation:
            document = json.loads(content)
            self._check(f"{where} request", document, "paths", template, method.lower(), "requestBody", *JSON)
        else:
            document = None
            if content:
                self.problems.append(f"{where}: has a body")
        names = re.findall(r"\{(\w+)\}", template)
        values = re.fullmatch(re.sub(r"\{\w+\}", "([^/]+)", template), path).groups()
        status, head, reply = self._act(
            method, template, dict(zip(names, values, strict=True)), query, document, account
        )
        self._check_answer(where, template, operation, method.lower(), status, reply)
        return status, head, reply

    def _check_query(self, where, operation, query):
        known = {p["name"]: p for p in map(resolved, operation.get("parameters", ())) if p["in"] == "query"}
        for name, (value, *_) in query.items():
            if name not in known:
                self.problems.append(f"{where}: unknown parameter {name}")
            elif known[name]["schema"].get("type") == "integer" and not value.isdigit():
                self.problems.append(f"{where}: {name}={value} is no integer")
            elif value not in known[name]["schema"].get("enum", [value]):
                self.problems.append(f"{where}: {name}={value} is not allowed")

    def _check_answer(self, where, template, operation, method, status, reply):
        answers = operation["responses"]
        if status in (401, 403, 404):  # GitHub gives these to any request, and does not list them everywhere.
            self._check(f"{where} {status}", reply, "components", "schemas", "basic-error")
        elif str(status) not in answers:
            self.problems.append(f"{where}: {status} is no answer of it")
        elif "content" in resolved(answers[str(status)]):
            if "$ref" in answers[str(status)]:
                place = answers[str(status)]["$ref"].removeprefix("#/").split("/")
            else:
                place = ["paths", template, method, "responses", str(status)]
            self._check(f"{where} {status}", reply, *place, *JSON)
        elif reply is not None:
            self.problems.append(f"{where}: {status} has no content")

    def _check(self, where, document, *place):
        self.problems += [f"{where}: {e.json_path}: {e.message[:200]}" for e in validator(*place).iter_errors(document)]

    def _act(self, method, template, at, query, document, account):
        """Do what a request asks for."""
        repository = f"{at['owner']}/{at['repo']}"
        number = int(at.get("issue_number") or at.get("pull_number") or 0)
        if number and (repository, number) not in self.pulls:
            return 404, {}, error("Not Found")
        if method != "GET" and not account.writes:
            return 403, {}, error("Resource not accessible by integration")
        if template.endswith("/pulls"):
            return self._page([self._simple(p) for p in self._listed(repository, query)], query, template, at)
        if template.endswith("/pulls/{pull_number}"):
            return 200, {}, self.pulls[repository, number]
        if method == "GET":
            found = [c for _, (r, n, c) in sorted(self.comments.items()) if (r, n) == (repository, number)]
            found = [] if self.lag else found
            return self._page(found, query, template, at)
        return self._write(method, repository, number, int(at.get("comment_id", 0)), document, account)

    def _write(self, method, repository, number, comment_id, document, account):
        if document is not None and len(document["body"]) > LONGEST_BODY:
            errors = [{"resource": "IssueComment", "code": "unprocessable", "field": "data"}]
            return 422, {}, {**error("Validation Failed"), "errors": errors}
        if method == "POST":
            comment = self.say(number, document["body"], login=account.login, kind=account.kind, repository=repository)
            return 201, {"Location": comment["url"]}, comment
        with self._lock:
            known = self.comments.get(comment_id, ("",))[0] == repository
            if method == "DELETE":
                self.comments.pop(comment_id, None)
                return (204, {}, None) if known else (404, {}, error("Not Found"))
            if not known:
                return 404, {}, error("Not Found")
            self.comments[comment_id][2]["body"] = document["body"]
            return 200, {}, self.comments[comment_id][2]

    def _listed(self, repository, query):
        state, head = query.get("state", ["open"])[0], query.get("head", [""])[0]
        pulls = [p for (of, _), p in sorted(self.pulls.items()) if of == repository]
        return [p for p in pulls if state in ("all", p["state"]) and head in ("", p["head"]["label"])]

    def _simple(self, pull):
        """Return what the list shows of a pull request."""
        known = resolved({"$ref": "#/components/schemas/pull-request-simple"})["properties"]
        return {**named("pull-request-simple"), **{key: value for key, value in pull.items() if key in known}}

    def _page(self, found, query, template, at):
        page, size = int(query.get("page", ["1"])[0]), int(query.get("per_page", ["30"])[0])
        headers = {}
        if page * size < len(found):
            rest = {key: value[0] for key, value in query.items()} | {"page": page + 1, "per_page": size}
            listed = "&".join(f"{key}={quote(str(value))}" for key, value in rest.items())
            headers["Link"] = f'<{self.url}{template.format(**at)}?{listed}>; rel="next"'
        return 200, headers, found[(page - 1) * size : page * size]


JSON = ("content", "application/json", "schema")


def error(message):
    return {"message": message, "documentation_url": "https://docs.github.com/rest", "status": "0"}


def _handler(github):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, document = github.answer(self.command, self.path, self.headers, content)
            text = document if isinstance(document, bytes) else json.dumps(document).encode()
            text = b"" if document is None else text
            self.send_response(status)
            standard = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(text))}
            for name, value in {**standard, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = len(text) < int(headers.get("Content-Length", 0))  # a body that is cut short

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *arguments):
            del arguments

    return Handler
