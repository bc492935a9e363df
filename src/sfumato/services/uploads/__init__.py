"""Files that owners hand in: they wait here, unread, until their data set is added."""

from sfumato.services.uploads.uploads import MOST, Incoming, Upload, Uploads

__all__ = ["MOST", "Incoming", "Upload", "Uploads"]
