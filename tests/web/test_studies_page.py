"""The list of studies."""


def test_every_study_is_listed_with_its_question_and_states(client):
    found = {study["name"]: study for study in client.get("/api/studies").json()["studies"]}
    assert found["tiny/rule"]["states"] == {"finished": 4}
    assert found["tiny/rule"]["varies"] == ["train.weight_decay"]
    assert found["tiny/hebrew"]["question"] == "מה לומד מודל קטן משיר אחד?"
