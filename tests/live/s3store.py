# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What t_log.py asks of a store with Amazon's own client (boto3), run with the Python
of scripts/pytools outputs.

s3store.py make URL REGION BUCKET     a bucket, a user who may use it, and from then on
                                      every request's signature is checked; prints keys
s3store.py get URL REGION BUCKET DIR  every object into DIR (ID, SECRET and TOKEN of the
                                      environment), prints their keys"""

import json, os, sys, urllib.request
import boto3
from botocore.config import Config

what, url, region, bucket = sys.argv[1:5]
kw = dict(endpoint_url=url, region_name=region, verify=os.environ.get("STORE_CA") or None,
          config=Config(s3={"addressing_style": "path"}, proxies={}))


def make():
    kw.update(aws_access_key_id="nobody", aws_secret_access_key="nothing")
    iam, sts = boto3.client("iam", **kw), boto3.client("sts", **kw)
    boto3.client("s3", **kw).create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
    may = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}
    iam.create_user(UserName="probe")
    iam.put_user_policy(UserName="probe", PolicyName="p", PolicyDocument=json.dumps(may))
    key = iam.create_access_key(UserName="probe")["AccessKey"]
    role = iam.create_role(RoleName="probe", AssumeRolePolicyDocument=json.dumps(trust))["Role"]
    iam.put_role_policy(RoleName="probe", PolicyName="p", PolicyDocument=json.dumps(may))
    session = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="session")["Credentials"]
    ctx = None
    if os.environ.get("STORE_CA"):
        import ssl
        ctx = ssl.create_default_context(cafile=os.environ["STORE_CA"])
    urllib.request.urlopen(urllib.request.Request(url + "/moto-api/reset-auth", data=b"0", method="POST",
                                                  headers={"Content-Type": "text/plain"}), context=ctx).read()
    print(json.dumps({"id": key["AccessKeyId"], "secret": key["SecretAccessKey"], "session": {
        "id": session["AccessKeyId"], "secret": session["SecretAccessKey"], "token": session["SessionToken"]}}))


def get():
    kw.update(aws_access_key_id=os.environ["ID"], aws_secret_access_key=os.environ["SECRET"])
    s3, keys = boto3.client("s3", **kw), []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for o in page.get("Contents", []):
            keys.append(o["Key"])
            body = s3.get_object(Bucket=bucket, Key=o["Key"])["Body"].read()
            with open(os.path.join(sys.argv[5], os.path.basename(o["Key"])), "wb") as f:
                f.write(body)
    print(json.dumps(keys))


{"make": make, "get": get}[what]()
