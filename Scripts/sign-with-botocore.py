#!/usr/bin/env python3
"""Signs requests with botocore, for the tests of ObjectStorage: a JSON list of requests in, their `Authorization`s out.

A request has method, host, path (percent-encoded), query (pairs), fields (pairs), body (text), stamp, region, access,
secret and perhaps token.
"""
import datetime
import json
import sys

import botocore.auth
import botocore.awsrequest
import botocore.credentials


def sign(request):
    now = datetime.datetime.strptime(request["stamp"], "%Y%m%dT%H%M%SZ")
    botocore.auth.get_current_datetime = lambda *_, **__: now
    # By http: over https botocore may leave the body unsigned.
    outgoing = botocore.awsrequest.AWSRequest(
        method=request["method"], url=f"http://{request['host']}{request['path']}", data=request["body"].encode(),
        headers=dict(request["fields"]), params=dict(request["query"]))
    credentials = botocore.credentials.Credentials(request["access"], request["secret"], request.get("token"))
    botocore.auth.S3SigV4Auth(credentials, "s3", request["region"]).add_auth(outgoing)
    return outgoing.headers["Authorization"]


if not hasattr(botocore.auth, "get_current_datetime"):
    sys.exit("this botocore does not ask get_current_datetime for the time; 1.40 does")
json.dump([sign(request) for request in json.load(sys.stdin)], sys.stdout)
