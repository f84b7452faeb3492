"""Logins: the mechanisms, and the user that a client certificate names."""

from __future__ import annotations

import pytest
from tests.unit.amqp.face import Client, Connection, MemoryHost

from treecast.middleware.model.certificate_names import Subject
from treecast.shims.amqp.certificates import CertificateLogin, user_of
from treecast.shims.amqp.codec import PROTOCOL_HEADER
from treecast.shims.amqp.codec_methods import write_method, write_table
from treecast.shims.amqp.session_host import credentials
from treecast.shims.amqp.users import Users, guest

SUBJECT = ((("countryName", "DE"),), (("organizationName", "shop, inc"),), (("commonName", "orders"),))


def opening(user: str = "") -> Client:
    """A client that has got connection.start; `user` is named by its certificate."""
    access = Users()
    made, access.permissions = guest("/", b"salt")
    access.users = {made.name: made}
    client = Client(MemoryHost(access=access))
    client.session.state.certified = user
    client.send_bytes(PROTOCOL_HEADER)
    return client


def answer(client: Client, mechanism: str, response: str) -> object:
    capabilities = {"capabilities": {"authentication_failure_close": True}}
    client.send(Connection.StartOk(capabilities, mechanism, response), channel=0)
    (found,) = client.got()
    return found


def offered(client: Client) -> str:
    (start,) = client.got()
    assert isinstance(start, Connection.Start)
    return start.mechanisms


def test_the_mechanisms_that_take_a_password() -> None:
    table = write_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    for mechanism, response in (("PLAIN", "\0guest\0guest"), ("AMQPLAIN", table.decode())):
        client = opening()
        assert offered(client) == "PLAIN AMQPLAIN"
        assert isinstance(answer(client, mechanism, response), Connection.Tune)
        client = opening()
        offered(client)
        assert isinstance(answer(client, mechanism, response.replace("guest", "wrong")), Connection.Close)


@pytest.mark.parametrize("password", [b"gu\xe9st", b"\xff\xfe\xff\xfe\xff"])
def test_passwords_that_are_not_utf_8_are_wrong_and_no_fault(password: bytes) -> None:
    """pamqp gives such a long string as bytes, against its type: a compiled session must not believe it."""
    client = opening()
    offered(client)
    capabilities = {"capabilities": {"authentication_failure_close": True}}
    sent = write_method(0, Connection.StartOk(capabilities, "PLAIN", "\0guest\0wrong"))
    client << sent.replace(b"wrong", password) >> Connection.Close


@pytest.mark.parametrize("response", [b"", b"\x05LOGIN", b"\x05LOGINS\0\0\0\xff", b"\x05LOGINI\0\0\0\1"])
def test_a_malformed_amqplain_response(response: bytes) -> None:
    assert credentials("AMQPLAIN", response) is None


def test_a_certificate_logs_in_a_user_who_exists() -> None:
    client = opening("guest")
    assert offered(client) == "PLAIN AMQPLAIN EXTERNAL"
    assert isinstance(answer(client, "EXTERNAL", ""), Connection.Tune)
    assert client.session.state.user == "guest"
    stranger = opening("stranger")
    offered(stranger)
    refused = answer(stranger, "EXTERNAL", "guest")
    assert isinstance(refused, Connection.Close)
    assert refused.reply_code == 403


def test_no_certificate_no_external() -> None:
    client = opening()
    assert "EXTERNAL" not in offered(client)
    refused = answer(client, "EXTERNAL", "")
    assert isinstance(refused, Connection.Close)
    assert refused.reply_code == 503


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (SUBJECT, "CN=orders,O=shop\\, inc,C=DE"),
        ((), ""),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("commonName", " #x "),),), "CN=\\ #x\\ "),
        (((("commonName", "#"),), (("someThing", "é"),)), "someThing=\\C3\\A9,CN=\\#"),
    ],
)
def test_a_distinguished_name_is_spelt_as_by_rabbitmq(subject: Subject, name: str) -> None:
    assert user_of({"subject": subject}, CertificateLogin.DISTINGUISHED_NAME) == name


def test_a_common_name() -> None:
    assert user_of({"subject": SUBJECT}, CertificateLogin.COMMON_NAME) == "orders"
    assert user_of({}, CertificateLogin.COMMON_NAME) == ""
