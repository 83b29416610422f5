USE `strange_names ``. 'ü雪`;
INSERT INTO `sel``ect.1` VALUES (12, 'twelve', '12');
UPDATE `sel``ect.1` SET `desc"ription` = '2', `a.``b\\` = '22' WHERE `order` = 2;
UPDATE `sel``ect.2` SET `order` = 22, `desc"ription` = 'new', `a.``b\\` = 'y' WHERE `order` = 20;
UPDATE `sel``ect.2` SET `desc"ription` = '21', `a.``b\\` = 'x' WHERE `order` = 21;
DELETE FROM `табл{0}ица %d` WHERE `key``1` = 2;
INSERT INTO `табл{0}ица %d` VALUES (3, 3, 3);
DELETE FROM `no key;--` WHERE `a``.b` = 1;
INSERT INTO `no key;--` VALUES (3)
