"""constraint_probe as a Python object: one process, one question at a time."""

import json
import os
import subprocess

PROBE = os.environ.get("CONSTRAINT_PROBE", "")


class Probe:
    def __init__(self, *arguments):
        if not PROBE:
            raise AssertionError("CONSTRAINT_PROBE names the constraint_probe binary; it is not set")
        self.process = subprocess.Popen([PROBE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, schema, **more):
        return self.exchange({"schema": json.dumps(schema), **more})

    def take(self, token):
        return self.exchange({"take": int(token)})

    def exchange(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(f"constraint_probe ended: {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
